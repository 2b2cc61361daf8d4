"""What went wrong with a bucket or web server, in a few words without any address.

obstore's own texts are many lines long and hold whole addresses, signatures included.
"""

import re


def library_errors() -> tuple[type[Exception], ...]:
    """What obstore raises. It is loaded late: whoever needs no bucket starts faster without."""
    from obstore.exceptions import BaseError

    return (BaseError, OSError, ValueError)


def describe(error: Exception) -> str:
    """A few words on what went wrong, without any address."""
    if isinstance(error, FileNotFoundError):
        return "not there"
    if words := _KINDS.get(type(error).__name__):
        return words
    text = str(error)
    if status := re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z ]*)?)", text):
        return f"answered {status[1].strip()}"
    return next((words for sign, words in _SIGNS if sign in text), type(error).__name__)


_KINDS = {
    "PermissionDeniedError": "access denied; check the credentials",
    "UnauthenticatedError": "access denied; check the credentials",
    "PreconditionError": "changed during the transfer",
    "NotSupportedError": "answers no ranges",
}
"""By the names of obstore's classes."""

_SIGNS = (
    ("dns error", "no such host"),
    ("certificate", "its TLS certificate is not trusted"),
    ("Timeout", "silent past the deadline"),
    ("TimedOut", "silent past the deadline"),
    ("IncompleteBody", "the connection ended before the file"),
    ("tcp connect error", "cannot be reached"),
    ("ConnectionReset", "the connection broke off"),
    ("Interrupted", "the connection broke off"),
    ("error sending request", "cannot be reached"),
    ("body error", "the connection broke off"),
    ("Content-Length", "does not say how long the file is"),
)
