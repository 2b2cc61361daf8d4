"""Where finished files go: a folder or a bucket. Putting the same bytes under a key again changes nothing."""

from comfyfarm.addresses import mask
from comfyfarm.cache.places.objects import ObjectPlace, S3Access, open_place
from comfyfarm.errors import UsageError


def open_output_store(address: str, *, access: S3Access | None = None) -> ObjectPlace:
    """Open a folder (a path or `file://`) or `s3://bucket/prefix`. Nothing is written or asked yet.

    What arrived is compared by its SHA-256: as the bucket says it, else as it is read back.

    Args:
        address: where; a folder is made when the first file comes.
        access: credentials for `s3://`; else `AWS_*` of the environment says.

    Raises:
        UsageError: outputs cannot go there.
    """
    if address.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"{mask(address)}: a web server takes no outputs; use a folder or s3://bucket/prefix"
        )
    return open_place(address, access=access)
