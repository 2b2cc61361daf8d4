"""Python's search for garbage, put off while a file is looked at."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Look for no garbage meanwhile: graphs have no cycles, and the search takes as long as the reading.

    Inside of another one it changes nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
