"""What one lock has that another has not, and what both have differently."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.addresses import is_address, mask
from comfyfarm.lock.lockfile import Lock
from comfyfarm.lock.python_diff import python_changes
from comfyfarm.lock.versions import same_version

_SECTIONS = {
    "models": ("folder", "path"),
    "repos": ("id",),
    "packs": ("name", "url"),
    "missing": ("kind", "name"),
}


class Change(BaseModel):
    """One field of one thing: `old` is None where it is new, `new` where it is gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    section: str
    """`models`, `repos`, `packs`, `missing`, or the lock's own field."""
    name: str
    """What it is called there; empty for a field of the lock."""
    field: str
    """Empty where the whole thing is added or removed."""
    old: JsonValue = None
    new: JsonValue = None

    def __str__(self) -> str:
        sign = "~" if self.field or not self.name else "+" if self.old is None else "-"
        title = " ".join(part for part in (self.section, self.name) if part)
        if not self.field and self.name:
            return f"{sign} {title}{_content(self.new if self.old is None else self.old)}"
        place = f"{title} {self.field}".strip()
        old, new = (_header(one) if self.field == "header" else one for one in (self.old, self.new))
        if self.section == "python" and isinstance(old, dict) and isinstance(new, dict):
            return f"{sign} {place}: {python_changes(old, new)}"
        if _shown(old) == _shown(new):  # what differs is cut off
            return f"{sign} {place}: differs"
        return f"{sign} {place}: {_shown(old)} → {_shown(new)}"


def diff(old: Lock, new: Lock) -> tuple[Change, ...]:
    """Every difference, in the order of the file's sections; addresses without their logins."""
    return tuple(
        change.model_copy(update={"old": _masked(change.old), "new": _masked(change.new)})
        for change in _changes(old, new)
    )


def _masked(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return mask(value) if is_address(value) else value
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return {key: _masked(item) for key, item in value.items()} if isinstance(value, dict) else value


def _changes(old: Lock, new: Lock) -> list[Change]:
    one, other = old.model_dump(mode="json"), new.model_dump(mode="json")
    found: list[Change] = []
    for section, key in _SECTIONS.items():
        found.extend(_items(section, _by(key, one.pop(section, ())), _by(key, other.pop(section, ()))))
    found.extend(
        Change(section=name, name="", field="", old=one.get(name), new=other.get(name))
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name) and not (name == "comfyui" and _is_one_comfyui(old, new))
    )
    return found


def _is_one_comfyui(old: Lock, new: Lock) -> bool:
    return old.comfyui is not None and new.comfyui is not None and same_version(old.comfyui, new.comfyui)


def _by(key: tuple[str, ...], items: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {_name(key, item): item for item in items}


def _name(key: tuple[str, ...], item: Mapping[str, Any]) -> str:
    return ("/" if key == ("folder", "path") else " ").join(str(item[part]) for part in key)


def _items(
    section: str, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterable[Change]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            yield Change(
                section=section, name=name, field="", old=_whole(old.get(name)), new=_whole(new.get(name))
            )
            continue
        one, other = old[name], new[name]
        for field in sorted(one.keys() | other.keys()):
            if one.get(field) != other.get(field):
                yield Change(
                    section=section, name=name, field=field, old=one.get(field), new=other.get(field)
                )


def _whole(item: Mapping[str, Any] | None) -> JsonValue:
    return dict(item) if item is not None else None


def _content(item: JsonValue) -> str:
    """What tells two things of one name apart."""
    if not isinstance(item, dict):
        return ""
    for field in ("sha256", "commit", "revision", "reason"):
        if isinstance(item.get(field), str):
            size = f", {item['size']} bytes" if "size" in item else ""
            return f"  {_shown(item[field])}{size}"
    return ""


def _shown(value: JsonValue) -> str:
    text = _words(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _words(value: JsonValue) -> str:
    """Texts as they are, lists one behind the other, anything else as JSON."""
    if value is None or value == []:
        return "nothing"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _header(header: JsonValue) -> JsonValue:
    """The summary of a model's header in a few words, such as `safetensors, 1 tensor, F16 5000 bytes`."""
    if not isinstance(header, dict):
        return header
    tensors, dtypes = header.get("tensors"), header.get("dtypes")
    words = [str(header.get("kind", "")), f"{tensors} tensor{'' if tensors == 1 else 's'}"]
    for name, count in dtypes.items() if isinstance(dtypes, dict) else ():
        words.append(f"{name} {count.get('bytes')} bytes" if isinstance(count, dict) else name)
    return ", ".join(word for word in words if word)
