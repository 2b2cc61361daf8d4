"""Deadlines as a user writes them."""

import pytest

from comfyfarm.errors import UsageError
from comfyfarm.run.deadlines import Deadlines, read_deadlines


def test_phases_are_read_as_they_are_written() -> None:
    assert read_deadlines(()) == Deadlines()
    read = read_deadlines(("execution=1200", "no-progress=600.5", "queue_wait=5", "submit_s=9"))

    assert read == Deadlines(execution_s=1200, no_progress_s=600.5, queue_wait_s=5, submit_s=9)


@pytest.mark.parametrize(
    "word", ["execution", "execution=", "execution=0", "execution=-1", "cook=5", "=5", "execution=x"]
)
def test_what_is_no_phase_or_no_time_is_named_with_those_that_are(word: str) -> None:
    with pytest.raises(UsageError, match="write PHASE=SECONDS, more than 0; submit, queue-wait, ") as raised:
        read_deadlines((word,))

    assert f"--deadline {word}" in str(raised.value)
