"""A mirror by its address, checked before anything starts."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from comfyfarm.addresses import is_address, local_path, mask
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import ObjectPlace, S3Access
from comfyfarm.errors import UsageError


def open_mirror(address: str, *, is_new: bool = False, access: S3Access | None = None) -> ObjectPlace:
    """The mirror at a folder or bucket, for what a web server cannot do: list, write, sign.

    Args:
        address: of the mirror.
        is_new: whether a folder may still have to be made.
        access: for `s3://`; else `AWS_*` says.

    Raises:
        UsageError: the address is of another kind, or of a file, or of a folder that is not there.
    """
    path = local_path(address)
    place = open_place(address, access=access)
    if path is None and address.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"{mask(address)}: a web server is only read; name the mirror's folder or s3:// bucket"
        )
    if isinstance(place, FolderPlace) and place.root.exists() and not place.root.is_dir():
        raise UsageError(f"{place.address}: is a file; a mirror is a folder or an s3:// address")
    if isinstance(place, FolderPlace) and not is_new and not place.root.exists():
        raise UsageError(f"{place.address}: there is no such folder; `comfyfarm mirror add` makes a mirror")
    return place


def without_secrets(source: str) -> str | None:
    """An address without login, token or signature, for an entry that others read; None when none is left."""
    if not is_address(source) or mask(source) == source:
        return source
    try:
        parts = urlsplit(source)
    except ValueError:
        return None
    query = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if _plain(name, value)
    ]
    plain = urlunsplit(
        parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query), fragment="")
    )
    return plain if mask(plain) == plain else None


def _plain(name: str, value: str) -> bool:
    query = f"https://h/?{name}={value}"
    return mask(query) == query and not name.lower().startswith(("x-amz-", "x-goog-"))
