"""Which life of a server this is."""

import os
import socket

from comfyfarm.comfy.identity import boot_identity


def test_a_listener_of_this_machine_is_known_by_pid_and_start() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        first = boot_identity(url)

        assert first.startswith(f"{os.getpid()}/")
        assert boot_identity(url) == first

    assert boot_identity(url) == ""


def test_what_cannot_be_seen_has_no_identity() -> None:
    assert boot_identity("http://gpu.example:8188") == ""
    assert boot_identity("http://127.0.0.1") == ""
    assert boot_identity("garbage") == ""
