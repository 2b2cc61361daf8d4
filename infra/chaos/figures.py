"""A number of the verdict, and whether it is what it must be."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

_SHOWN = 12


class Figure(BaseModel):
    """One line of what is printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: JsonValue
    bar: str = ""
    """What it must be; empty for a number that only tells how the run was."""
    ok: bool = True
    details: tuple[str, ...] = ()
    """Those by which it is not ok."""


def told(name: str, value: JsonValue) -> Figure:
    """A number without a bar."""
    return Figure(name=name, value=value)


def none_of(name: str, wrong: Iterable[str]) -> Figure:
    """How many there are of what must not be."""
    found = tuple(wrong)
    return Figure(name=name, value=len(found), bar="0", ok=not found, details=found[:_SHOWN])


def all_of(name: str, wrong: Sequence[str], *, count: int) -> Figure:
    """How many there are of what must be, all of them."""
    value = count - len(wrong)
    return Figure(name=name, value=value, bar=str(count), ok=not wrong, details=tuple(wrong)[:_SHOWN])
