"""What is sometimes stored under a model's name and is none: a login page, a Git LFS pointer."""

from pathlib import Path

from comfyfarm.errors import InputError

HEAD_BYTES = 512
_LFS = b"version https://git-lfs.github.com/spec/"
_HTML = (b"<!doctype html", b"<html", b"<head")


def what_else(head: bytes) -> str | None:
    """What a file that begins so is, where that is no model; None where it may be one."""
    if head.startswith(_LFS):
        return "a Git LFS pointer, not the file that it stands for (`git lfs pull` brings it)"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_HTML):
        return "a web page, not a model (a login is asked for, or the address is that of the model's page)"
    return None


def refuse_what_is_no_model(file: Path, *, shown: str) -> None:
    """Look at a file's beginning. `shown`: how the message names it.

    Raises:
        InputError: it is known not to be a model, or it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
    except OSError as exc:
        raise InputError(f"{shown}: cannot be read ({exc.strerror})") from exc
    if other := what_else(head):
        raise InputError(f"{shown}: is {other}")
