"""JSON, read strictly: what a lenient parser would change without a word is named instead.

Duplicate keys, NaN and infinities, numbers too long to be meant, lone surrogates, U+0000, other
encodings than UTF-8, nesting and size beyond any workflow: each is a finding with a code and the JSON path.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from comfyfarm.workflow.findings import Finding, Refused, error
from comfyfarm.workflow.shown import shown

LIMIT_BYTES = 100 * 1024 * 1024
"""ComfyUI refuses larger bodies by default (`--max-upload-size`)."""
MAX_DEPTH = 100
"""Levels of nesting. Real files stay below 20; parsers and copies recurse."""
MAX_DIGITS = 400
"""Digits of one number. A seed has 20; ComfyUI's parser refuses 4,300."""

_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"),
         (b"\xfe\xff", "UTF-16"))  # fmt: skip
_UTF8_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ODD_TEXT = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Flaw:
    """A value that strict reading refuses, with its place in the document."""

    path: Path
    code: str
    message: str

    @property
    def finding(self) -> Finding:
        """The flaw as people see it."""
        place = "".join(
            f"[{step}]" if isinstance(step, int) else f".{shown_text(step[:60])}" for step in self.path
        )
        return error(self.code, f"{self.message} at ${place}", _REMEDIES[self.code])


@dataclass(frozen=True, slots=True)
class _Bad:
    """Stands in the parsed tree for a value that is refused, until its path is known."""

    code: str
    message: str
    instead: Any = None
    """What a lenient parser would have made of it, when that is fit to be kept."""


_REMEDIES = {
    "duplicate_key": "keep one of them: a parser would drop the other without a word",
    "non_finite": "write a finite number",
    "int_too_long": "write the number that was meant",
    "lone_surrogate": "save the text again as valid Unicode",
    "nul_character": "take it out: no file name can hold it, and no text of PostgreSQL",
}


def strict_json(data: bytes, *, name: str) -> Any:
    """Parse a JSON document, or say exactly what is wrong with it.

    Raises:
        Refused: a `WorkflowError`, with one finding for each flaw. `name` is the file in messages.
    """
    tree, flaws = parse(data, name=name)
    if flaws:
        raise Refused(name, [flaw.finding for flaw in flaws])
    return tree


def parse(data: bytes, *, name: str) -> tuple[Any, tuple[Flaw, ...]]:
    """Parse a JSON document; what can be placed comes as flaws, what cannot is raised.

    Where a flaw is, the tree is mended, so that the rest can still be looked at: the last of duplicate
    keys, null for a number that is none, U+FFFD for what is no character.

    Raises:
        Refused: too large, another encoding, too deep, or no JSON at all.
    """
    text = _decode(data, name)
    bad: list[_Bad] = []
    try:
        tree = json.loads(text, **_hooks(bad))
    except json.JSONDecodeError as exc:
        message = f"not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}"
        raise Refused(name, [error("bad_json", message, "export the file again")]) from exc
    except RecursionError as exc:
        raise Refused(name, [_too_deep()]) from exc
    if not bad and not _ODD_TEXT.search(data):
        return tree, ()
    flaws: list[Flaw] = []
    tree = _mended(tree, (), flaws)
    return tree, tuple(flaws)


def has_bom(data: bytes) -> bool:
    """Whether the file begins with UTF-8's byte order mark, which some editors add."""
    return data.startswith(_UTF8_BOM)


def _decode(data: bytes, name: str) -> str:
    if len(data) > LIMIT_BYTES:
        message = f"{len(data)} bytes, which is more than ComfyUI takes ({LIMIT_BYTES})"
        raise Refused(name, [error("too_large", message, "pass images as files, not inside the JSON")])
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            raise Refused(name, [error("not_utf8", f"encoded as {encoding}", "save it as UTF-8")])
    if _depth(data) > MAX_DEPTH:
        raise Refused(name, [_too_deep()])
    try:
        return data.removeprefix(_UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as exc:
        message = f"not UTF-8: byte 0x{data[exc.start]:02x} at offset {exc.start}"
        raise Refused(name, [error("not_utf8", message, "save it as UTF-8")]) from exc


def _depth(data: bytes) -> int:
    """Deepest nesting, as far as it matters: strings are cut out, then innermost pairs level by level."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return 0
    bare = _ESCAPE.sub(b"", data) if b"\\" in data else data
    # Two quotes side by side are an empty text, or two texts that may as well be one.
    brackets = bare.translate(_ONE_KIND, _NOT_STRUCTURE).replace(b'""', b"")
    brackets = _STRING.sub(b"", brackets)
    levels = 0
    while levels <= MAX_DEPTH and b"[]" in brackets:
        brackets = brackets.replace(b"[]", b"")
        levels += 1
    return levels + brackets.count(b"[")


def _too_deep() -> Finding:
    return error("too_deep", f"nested deeper than {MAX_DEPTH} levels", "no workflow is; export it again")


def _hooks(bad: list[_Bad]) -> dict[str, Any]:
    def note(code: str, message: str) -> _Bad:
        bad.append(_Bad(code, message))
        return bad[-1]

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    found[key] = _twice(key, found[key])
                    bad.append(found[key])
                seen.add(key)
        return found

    def number(digits: str) -> Any:
        if len(digits) > MAX_DIGITS:
            return note("int_too_long", f"a number of {len(digits)} digits")
        return int(digits)

    def real(digits: str) -> Any:
        value = float(digits)
        return value if math.isfinite(value) else note("non_finite", f"{digits[:20]} is infinite")

    return {
        "object_pairs_hook": pairs,
        "parse_int": number,
        "parse_float": real,
        "parse_constant": lambda word: note("non_finite", f"{word} is no JSON number"),
    }


def _twice(key: str, last: Any) -> _Bad:
    if isinstance(last, _Bad) and last.code == "duplicate_key":
        return last
    return _Bad("duplicate_key", f"the key {shown(key)} occurs twice", last)


def _mended(value: Any, path: Path, flaws: list[Flaw]) -> Any:
    """The value without its flaws, which are listed in the order of the file. Nesting is bounded."""
    if isinstance(value, _Bad):
        flaws.append(Flaw(path, value.code, value.message))
        return _mended(value.instead, path, flaws)
    if isinstance(value, dict):
        return {
            _mended_text(key, (*path, key), flaws): _mended(item, (*path, key), flaws)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mended(item, (*path, place), flaws) for place, item in enumerate(value)]
    return _mended_text(value, path, flaws) if isinstance(value, str) else value


def _mended_text(text: str, path: Path, flaws: list[Flaw]) -> str:
    odd = text_flaw(text)
    if odd is None:
        return text
    flaws.append(Flaw(_safe(path), *odd))
    return _SURROGATE.sub("\ufffd", text).replace("\0", "\ufffd")


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded: half a surrogate pair cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def text_flaw(text: str) -> tuple[str, str] | None:
    """Code and message of what makes a text unfit to be kept; None for a good one."""
    if not is_unicode(text):
        return "lone_surrogate", "half a surrogate pair"
    return ("nul_character", "the character U+0000") if "\0" in text else None


def _safe(path: Path) -> Path:
    return tuple(step if isinstance(step, int) or is_unicode(step) else "?" for step in path)


def shown_text(text: str) -> str:
    """The text as it may be printed and kept."""
    return text.replace("\0", "\\0")
