"""The mirror that a command is to list, change or sign, with what is missing said before anything starts."""

from comfyfarm.cache.mirrors.opened import open_mirror
from comfyfarm.cache.places.bucket import BucketPlace
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cache.places.signing import Signer
from comfyfarm.errors import StoreError, UsageError


def mirror_at(address: str, *, is_new: bool = False) -> ObjectPlace:
    """`open_mirror`, of a bucket with credentials.

    Raises:
        UsageError: it is none, or there are no credentials at all for it.
        StoreError: there are, and they cannot be had just now.
    """
    place = open_mirror(address, is_new=is_new)
    if isinstance(place, BucketPlace):
        try:
            Signer("", None).keys()
        except StoreError as exc:
            if exc.__context__ is not None:  # there is something that failed
                raise
            raise UsageError(
                f"{place.address}: no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or AWS_PROFILE, or give this machine a role"
            ) from None
    return place
