"""Places that hold files under names: a folder, an S3-compatible bucket, or a plain web server.

`open_place` makes one of an address. With the empty name a place is one file, such as a model's source.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from comfyfarm.addresses import is_address, mask
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.place import ObjectPlace, S3Access
from comfyfarm.cache.places.web import open_web
from comfyfarm.errors import UsageError

__all__ = ["ObjectPlace", "S3Access", "open_place"]


def open_place(address: str, *, access: S3Access | None = None) -> ObjectPlace:
    """Open a folder path, `file://`, `s3://bucket/prefix`, or `http(s)://host/prefix` (read only).

    Args:
        address: where; with the empty name as a file's name it may also be one file.
        access: for `s3://`; else `AWS_*` of the environment says.

    Raises:
        UsageError: an address of a kind that is not known.
    """
    if not is_address(address):
        return FolderPlace(Path(address))
    parts = urlsplit(address)
    match parts.scheme.lower():
        case "file":
            return FolderPlace(Path(unquote(parts.path)))
        case "s3":
            # Loaded late: signing and uploading take longer to load than a small file to fetch.
            from comfyfarm.cache.places.bucket import open_bucket

            return open_bucket(address, access=access)
        case "http" | "https":
            return open_web(address)
    raise UsageError(f"{mask(address)}: {parts.scheme}:// is not known; use a path, s3:// or https://")
