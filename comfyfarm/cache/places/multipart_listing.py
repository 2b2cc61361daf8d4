"""Which uploads of many parts a bucket has that have not ended, and which parts of one are there."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from comfyfarm.cache.places.s3_calls import Calls, Refused


class Unfinished(NamedTuple):
    """An upload that was begun."""

    key: str
    upload_id: str
    begun: datetime


class Part(NamedTuple):
    """A part that a store has of one."""

    size: int
    etag: str
    checksum: str
    """SHA-256 in base64; empty where there is none."""


class Listing(NamedTuple):
    """What there is of an upload."""

    algorithm: str
    """Of its checksums; empty where the store does not say."""
    parts: dict[int, Part]


def list_uploads(calls: Calls, prefix: str) -> Iterator[Unfinished]:
    """Unfinished uploads of keys that begin with `prefix`.

    Raises:
        Refused: the store does not say.
    """
    after: dict[str, str] = {}
    while True:
        page = _page(calls, "", {"uploads": "", "prefix": prefix, **after})
        for one in page.findall("Upload"):
            begun = datetime.fromisoformat(_text(one, "Initiated"))
            yield Unfinished(_text(one, "Key"), _text(one, "UploadId"), begun)
        following = _text(page, "NextKeyMarker"), _text(page, "NextUploadIdMarker")
        if _text(page, "IsTruncated") != "true" or not following[0]:
            return
        after = {"key-marker": following[0], "upload-id-marker": following[1]}


def list_parts(calls: Calls, key: str, upload_id: str) -> Listing:
    """The parts of an upload that are there.

    Raises:
        Refused: there is no such upload, or the store does not say.
    """
    found: dict[int, Part] = {}
    after: dict[str, str] = {}
    while True:
        page = _page(calls, key, {"uploadId": upload_id, **after})
        for one in page.findall("Part"):
            part = Part(int(_text(one, "Size")), _text(one, "ETag"), _text(one, "ChecksumSHA256"))
            found[int(_text(one, "PartNumber"))] = part
        following = _text(page, "NextPartNumberMarker")
        if _text(page, "IsTruncated") != "true" or not following:
            return Listing(_text(page, "ChecksumAlgorithm"), found)
        after = {"part-number-marker": following}


def _page(calls: Calls, key: str, query: dict[str, str]) -> ET.Element:
    answer = calls.ask("GET", key, query)
    try:
        page = ET.fromstring(answer.body)  # noqa: S314 - of the store that we trust with our files
    except ET.ParseError:
        raise Refused(answer.status, "", "answers no list of uploads") from None
    for element in page.iter():
        element.tag = element.tag.rpartition("}")[2]  # whatever its name space
    return page


def _text(element: ET.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
