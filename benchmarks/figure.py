"""One measured figure and its bar."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """`ok` says whether `value` meets `bar`; `against` says what it was measured against."""

    name: str
    value: float
    unit: str
    bar: str
    ok: bool
    against: str

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
