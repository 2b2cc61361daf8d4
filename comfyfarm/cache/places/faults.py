"""What went wrong with a bucket or web server, in a few words without any address.

obstore's own texts are many lines long and hold whole addresses, signatures included.
"""

import re

from obstore.exceptions import (
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)


def describe(error: Exception) -> str:
    """A few words on what went wrong, without any address."""
    match error:
        case FileNotFoundError():
            return "not there"
        case PermissionDeniedError() | UnauthenticatedError():
            return "access denied; check the credentials"
        case PreconditionError():
            return "changed during the transfer"
        case NotSupportedError():
            return "answers no ranges"
    text = str(error)
    if status := re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z ]*)?)", text):
        return f"answered {status[1].strip()}"
    return next((words for sign, words in _SIGNS if sign in text), type(error).__name__)


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
