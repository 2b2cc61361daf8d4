"""Telling the dead from the living."""

import os
import subprocess
import sys

import pytest

from comfyfarm.ledger.owner import is_alive, is_gone, process_start, this_owner


def test_two_owners_of_one_process_differ_and_live() -> None:
    first, second = this_owner(), this_owner()

    assert first != second
    assert not is_gone(first)
    assert not is_gone(second)


@pytest.fixture
def other_owner() -> str:
    """An owner whose process is over."""
    code = "from comfyfarm.ledger.owner import this_owner; print(this_owner())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_owner_whose_process_is_over_is_gone(other_owner: str) -> None:
    assert is_gone(other_owner)


def test_another_process_under_the_same_number_is_not_the_owner() -> None:
    host, boot, pid, start, tail = this_owner().split("/")

    assert is_gone(f"{host}/{boot}/{pid}/{int(start) + 1}/{tail}")


def test_after_a_reboot_all_owners_of_this_host_are_gone() -> None:
    host, _boot, pid, start, tail = this_owner().split("/")

    assert is_gone(f"{host}/earlier/{pid}/{start}/{tail}")


def test_in_doubt_an_owner_lives(other_owner: str) -> None:
    host, boot, pid, start, _tail = other_owner.split("/")

    assert not is_gone(f"elsewhere/{boot}/{pid}/{start}/1.a")
    assert not is_gone(f"{host}/{boot}/{pid}/{start}/another-container.a")
    assert not is_gone("me")
    assert not is_gone("")


def test_a_zombie_lives_no_more() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid)
        assert is_alive(process.pid, start)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not is_alive(process.pid, start)
