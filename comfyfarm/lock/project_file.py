"""`comfyfarm.toml`: which repository a class comes from, and what the farm lets in. Read strictly."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import mask
from comfyfarm.errors import UsageError
from comfyfarm.workflow.packs.policy import Policy
from comfyfarm.workflow.packs.urls import repo_url, split_commit

PROJECT_FILE: Final = "comfyfarm.toml"
PROJECT_LIMIT_BYTES: Final = 1024 * 1024
_POLICY_KEYS = ("allow_classes", "allow_packs", "allow_pickle_sha256")
_TABLES = ("packs", "policy")
_REF = re.compile(r"(?:[A-Za-z+]+://[^/]*/|(?:[\w.-]+@)?[\w.-]+:(?!//))[^?]*?[^/?@#:](?P<ref>[@#][^?]*)")
"""A branch, tag or short commit behind an address; what stands before the host or begins a name is none."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ProjectFile(BaseModel):
    """What the file says; without a file nothing is chosen and everything is let in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    packs: Mapping[str, str] = {}
    """Address of the repository by class, perhaps with `@<commit>` behind it."""
    policy: Policy = Policy()


def find_project_file(start: Path) -> Path | None:
    """The nearest `comfyfarm.toml` from a file or folder upwards."""
    place = start.absolute()
    found = (folder / PROJECT_FILE for folder in (place, *place.parents))
    return next((file for file in found if file.is_file()), None)


def read_project_file(data: bytes, *, name: str) -> ProjectFile:
    """Read the file.

    Raises:
        UsageError: it is no TOML, or holds what it should not; every flaw is named with its key.
    """
    return project_of(_parse(data, mask(name)), name=name)


def project_of(raw: Mapping[str, Any], *, name: str) -> ProjectFile:
    """The same from its tables.

    Raises:
        UsageError: they hold what they should not; every flaw is named with its key.
    """
    flaws = [*_unknown(raw, _TABLES, ""), *_pack_flaws(raw.get("packs")), *_policy_flaws(raw.get("policy"))]
    if flaws:
        raise UsageError("\n".join(f"{mask(name)}: {flaw}" for flaw in flaws))
    policy = {key: tuple(raw["policy"][key]) for key in _POLICY_KEYS if key in raw.get("policy", {})}
    if "allow_pickle_sha256" in policy:
        policy["allow_pickle_sha256"] = tuple(sha.lower() for sha in policy["allow_pickle_sha256"])
    return ProjectFile(packs=raw.get("packs", {}), policy=Policy(**policy))


def _parse(data: bytes, shown: str) -> dict[str, Any]:
    if len(data) > PROJECT_LIMIT_BYTES:
        raise UsageError(f"{shown}: larger than {PROJECT_LIMIT_BYTES} bytes, which no such file is")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise UsageError(f"{shown}: not UTF-8 at offset {exc.start}; save it as UTF-8") from exc
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise UsageError(f"{shown}: not TOML: {exc}; mend that line") from exc


def _unknown(raw: Mapping[str, Any], known: tuple[str, ...], table: str) -> Iterator[str]:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            remedy = f"{near[0]} may be meant" if near else f"known are {', '.join(known)}"
            yield f"{table}{key[:80]}: no such key; {remedy}"


def _pack_flaws(raw: Any) -> Iterator[str]:
    if raw is None:
        return
    if not isinstance(raw, dict):
        yield 'packs: is no table; write [packs] and below it "CLASS" = "URL"'
        return
    for class_type, url in raw.items():
        # A class with a dot, not quoted, is a table in TOML.
        if not isinstance(url, str):
            yield f'packs.{class_type[:80]}: is no text; write "CLASS" = "URL", the class in quotes'
        elif (ref := _REF.match(split_commit(url)[0])) is not None:
            said = mask(ref["ref"])[:60]
            yield f"packs.{class_type[:80]}: {said} is no commit; write its 40 hex digits"
        elif repo_url(split_commit(url)[0]) is None:
            yield f"packs.{class_type[:80]}: {mask(url)[:120]!r} is no address of a git repository; write https://…"


def _policy_flaws(raw: Any) -> Iterator[str]:
    if raw is None:
        return
    if not isinstance(raw, dict):
        yield "policy: is no table; write [policy] and below it allow_packs = […]"
        return
    yield from _unknown(raw, _POLICY_KEYS, "policy.")
    for key in _POLICY_KEYS:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            yield f'policy.{key}: is no list of texts; write {key} = ["…", "…"]'
        elif key == "allow_pickle_sha256":
            yield from _hash_flaws(value)


def _hash_flaws(values: list[str]) -> Iterator[str]:
    for value in values:
        if not _SHA256.fullmatch(value.lower()):
            yield f"policy.allow_pickle_sha256: {value[:80]!r} is no SHA-256; write its 64 hex digits"
