"""What a server gave, counted, as Prometheus reads it."""

import threading
from collections import Counter


class Counts:
    """Counts from any thread, since the server's start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._answers: Counter[int] = Counter()

    def answered(self, status: int) -> None:
        """One more answer with this status."""
        with self._lock:
            self._answers[status] += 1

    def sent(self, count: int) -> None:
        """So many more bytes of blobs."""
        with self._lock:
            self._bytes += count

    def text(self) -> str:
        """In Prometheus' text format 0.0.4."""
        with self._lock:
            answers, sent = sorted(self._answers.items()), self._bytes
        name = "comfyfarm_peer_requests_total"
        return "\n".join(
            [
                "# HELP comfyfarm_peer_sent_bytes_total Bytes of model files given to peers.",
                "# TYPE comfyfarm_peer_sent_bytes_total counter",
                f"comfyfarm_peer_sent_bytes_total {sent}",
                f"# HELP {name} Requests answered, by HTTP status.",
                f"# TYPE {name} counter",
                *(f'{name}{{status="{status}"}} {count}' for status, count in answers),
                "",
            ]
        )
