"""The end of a link, no more: `python -m benchmarks.hydrate_sink URL SIZE CONNECTIONS` prints bytes/s.

Each connection receives ranges of 16 MiB into one place in memory, a MiB with each call of the system.
"""

import itertools
import socket
import sys
import threading
import time
from urllib.parse import SplitResult, urlsplit

PART_BYTES = 16 << 20
CALL_BYTES = 1 << 20


def rate(url: str, size: int, connections: int) -> float:
    """Bytes a second of the whole file."""
    parts, one = itertools.count(0, PART_BYTES), threading.Lock()

    def receive() -> None:
        buffer = memoryview(bytearray(CALL_BYTES))
        with _connected(url) as connection:
            while True:
                with one:
                    begin = next(parts)
                if begin >= size:
                    return
                _receive_part(connection, urlsplit(url), range(begin, min(begin + PART_BYTES, size)), buffer)

    threads = [threading.Thread(target=receive) for _ in range(connections)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return size / (time.perf_counter() - begun)


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80))


def _receive_part(connection: socket.socket, url: SplitResult, part: range, buffer: memoryview) -> None:
    asked = f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nRange: bytes={part[0]}-{part[-1]}\r\n\r\n"
    connection.sendall(asked.encode())
    head = b""
    while (ends := head.find(b"\r\n\r\n")) < 0:
        head = connection.recv(1 << 14, socket.MSG_PEEK)
        if not head:
            raise ConnectionError("closed before its answer")
    assert head.startswith(b"HTTP/1.1 206")
    connection.recv(ends + 4, socket.MSG_WAITALL)
    missing = len(part)
    while missing:
        got = connection.recv_into(buffer, min(missing, len(buffer)), socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("closed in mid-answer")
        missing -= got


if __name__ == "__main__":
    print(rate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
