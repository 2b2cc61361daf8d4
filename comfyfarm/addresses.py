"""Small files that a user names (workflow, job file, lock, catalogue): a path, https:// or s3://."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from comfyfarm.errors import FarmError, InputError, TryLater, UsageError

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SECRET_PARAMS = re.compile(
    r"(?i)(signature|credential|token|key|key-pair-id|secret|password|passwd|pwd|auth|policy|sig)=[^&]*"
)
# A scheme was forgotten or misspelt; `C:\\` is a drive.
_SCHEMELESS_LOGIN = re.compile(r"^(?![a-z]:[\\/][^/])/{0,2}[^/]*:.*@", re.DOTALL | re.IGNORECASE)


def is_address(name: str) -> bool:
    """Whether `name` has a scheme, such as `s3://`; a path has none."""
    return bool(_SCHEME.match(name))


def local_path(name: str) -> Path | None:
    """The file of this machine that a path or `file://` address names; None for an address elsewhere."""
    if not is_address(name):
        return Path(name)
    parts = urlsplit(name)
    return Path(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def mask(address: str) -> str:
    r"""The address as it may be printed, without password, token or signature; else as it was written.

    A password may hold every sign, also those that end the host (`/`, `?`, `#`): in doubt all is hidden
    that stands before the last `@`. Bytes of a file name that are no UTF-8 are written out (`\udcff`).
    """
    address = address.encode(errors="backslashreplace").decode()
    if not is_address(address):
        return _SCHEMELESS_LOGIN.sub("***@", address)
    scheme, _, rest = address.partition("://")
    place, mark, query = _without_login(scheme, rest)
    return f"{scheme}://{place}{mark}" + _SECRET_PARAMS.sub(r"\1=***", query)


def _without_login(scheme: str, rest: str) -> tuple[str, str, str]:
    """What stands before the query or fragment, the sign that begins it, and the query."""
    login, at, behind = rest.rpartition("@")
    is_file = scheme.lower().startswith("sqlite") and rest.startswith("/")  # nobody logs in to it
    is_login = ":" in login or "@" in re.split("[/?#]", rest, maxsplit=1)[0]
    if at and is_login and not is_file:
        rest = f"***@{behind}"
    found = re.search("[?#]", rest)
    return (rest, "", "") if found is None else (rest[: found.start()], found[0], rest[found.end() :])


def expanded(path: Path) -> Path:
    """The path with `~` replaced; where there is no such user, the path is meant as it is written."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def base_name(name: str) -> str:
    """The last part of a path or address, such as `portrait.json`."""
    return Path(urlsplit(name).path if is_address(name) else name).name


def sibling(name: str, other: str) -> str:
    """`other` beside the file `name`, as a path or address of the same kind."""
    if is_address(other) or Path(other).is_absolute():
        return other
    if is_address(name):
        parts = urlsplit(name)
        return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + other))
    return str(Path(name).parent / other)


def read_bytes(name: str, *, limit_bytes: int) -> bytes:
    """Read a whole small file.

    Raises:
        InputError: there is no such file, it cannot be read, or it is larger than `limit_bytes`.
        TryLater: the address did not answer.
        UsageError: the address has a scheme that is not known.
    """
    if not is_address(name):
        return _read_path(Path(name), limit_bytes)
    import fsspec

    with told_errors(name, "read"):
        with fsspec.open(name, "rb") as file:
            data: bytes = file.read(limit_bytes + 1)
        return _checked(mask(name), data, limit_bytes)


@contextmanager
def told_errors(address: str, verb: str) -> Iterator[None]:
    """Turn what fsspec and the libraries below it raise for an address into our errors.

    `verb`: what is done with it, such as `read`.

    Raises:
        InputError: there is no such file, or access is denied.
        TryLater: the address did not answer.
        UsageError: its scheme is not known, or it is no address at all.
    """
    _check_scheme(address)
    try:
        yield
    except (FileNotFoundError, PermissionError) as exc:
        raise _absent(address, exc) from None  # its text may hold the address, with a signature
    except _failures() as exc:
        if getattr(exc, "status", None):  # an answer, if not the one that was hoped for
            raise _absent(address, exc) from None
        raise _failed(address, verb, exc) from None


def _check_scheme(address: str) -> None:
    import fsspec

    scheme = address.partition("://")[0].lower()
    try:
        fsspec.get_filesystem_class(scheme)
    except (ValueError, ImportError) as exc:
        why = "is not known" if isinstance(exc, ValueError) else "needs a library that is not installed"
        raise UsageError(f"{mask(address)}: {scheme}:// {why}; use a path, https:// or s3://") from None


_LIBRARIES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("ftplib", "Error"),
)
"""Bases of errors that are no OSError. Only a library that is loaded can have raised one."""


def _failures() -> tuple[type[Exception], ...]:
    loaded = (getattr(sys.modules[name], base) for name, base in _LIBRARIES if name in sys.modules)
    return (OSError, ValueError, ImportError, *loaded)


def _failed(address: str, verb: str, error: Exception) -> FarmError:
    kind = type(error).__name__
    if any(word in kind for word in ("Credential", "Token", "Profile")):  # botocore's many names for it
        return InputError(f"{mask(address)}: access denied; check the credentials")
    if isinstance(error, ValueError) or kind == "ParamValidationError":
        return UsageError(f"{mask(address)}: is no such address ({kind}); correct it")
    return TryLater(f"{mask(address)}: cannot be {verb} ({kind})")


def _absent(name: str, error: Exception) -> FarmError:
    """What it means that fsspec found no file: over http it says so of servers that are down, too."""
    cause: BaseException | None = error
    while isinstance(cause, FileNotFoundError):
        cause = cause.__cause__
    status = getattr(cause, "status", None)
    if status in {401, 403} or isinstance(error, PermissionError):
        return InputError(f"{mask(name)}: access denied; check the credentials")
    if status is not None and (status == 429 or status >= 500):
        return TryLater(f"{mask(name)}: cannot be read (HTTP {status})")
    if isinstance(cause, OSError):
        return TryLater(f"{mask(name)}: cannot be read ({type(cause).__name__})")
    return InputError(f"{mask(name)}: there is no such file")


def _read_path(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return _checked(str(path), file.read(limit_bytes + 1), limit_bytes)
    except FileNotFoundError as exc:
        raise InputError(f"{path}: there is no such file") from exc
    except IsADirectoryError as exc:
        raise InputError(f"{path}: is a folder, not a file") from exc
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror})") from exc


def _checked(shown: str, data: bytes, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise InputError(f"{shown}: larger than {limit_bytes} bytes, which no such file should be")
    return data
