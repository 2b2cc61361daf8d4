"""One Python environment for ComfyUI and all node packs, solved together; conflicts name both sides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from comfyfarm.lock.conflict import OutOfTries, Tries, smallest_failing
from comfyfarm.lock.requirement_lines import PackRequirements, RequirementLine, broken_line, unsatisfied
from comfyfarm.lock.uv_compile import Answer, Ending, Pin, Target, compile_requirements, find_uv
from comfyfarm.workflow.findings import Finding, error

COMFYUI: Final = "ComfyUI"
"""What ComfyUI's own requirements are called among the packs."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_MOST_TRIES = 120
_MOST_FAULTS = 10
_MOST_BROKEN = 50
_LONGEST_REASON = 400


@dataclass(frozen=True, slots=True)
class Environment:
    """The solved environment, or what stands in its way."""

    python: dict[str, Any] | None
    """As the lock keeps it: `version`, `platform`, `requirements`, `unsolved`, `sources`. None for none."""
    findings: tuple[Finding, ...]


def solve_environment(
    sources: Sequence[PackRequirements], target: Target, *, counted: Mapping[str, str] = _NONE
) -> Environment:
    """Solve the requirements of all sources together.

    When that cannot be done, the findings name the requirements that exclude each other.

    `counted`: packs of which no class is known to be needed, and why they count all the same.

    Raises:
        UsageError: uv is not installed, or the wheelhouse is no folder.
        TryLater: an index did not answer.
    """
    solver = _Solver(target)
    lines = [line for source in sources for line in source.lines]
    answer = solver.answer(lines)
    findings = [*chain.from_iterable(source.findings for source in sources), *solver.broken]
    if answer.ending is Ending.SOLVED:
        return Environment(_locked(sources, answer.pins, target), tuple(findings))
    kept = solver.without_broken(lines)
    return Environment(None, (*findings, *solver.faults(kept, answer, counted)))


class _Solver:
    """Asks uv, and keeps what was found on the way."""

    def __init__(self, target: Target) -> None:
        self._uv = find_uv()
        self._target = target
        self._tries = Tries(_MOST_TRIES)
        self._dropped: set[RequirementLine] = set()
        self.broken: list[Finding] = []

    def answer(self, lines: Sequence[RequirementLine]) -> Answer:
        """Solve them, leaving out what uv cannot read."""
        while True:
            answer = compile_requirements(self.without_broken(lines), self._target, uv=self._uv, hashes=True)
            if answer.broken is None or len(self._dropped) >= _MOST_BROKEN:
                return answer
            self._dropped.add(answer.broken)
            self.broken.append(broken_line(answer.broken, answer.reason[:_LONGEST_REASON]))

    def without_broken(self, lines: Sequence[RequirementLine]) -> list[RequirementLine]:
        """The lines that uv can read."""
        return [line for line in lines if line not in self._dropped]

    def faults(
        self, lines: list[RequirementLine], answer: Answer, counted: Mapping[str, str]
    ) -> list[Finding]:
        """What stands in the way: each a smallest set of lines, until the rest can be solved."""
        found: list[Finding] = []
        try:
            while answer.ending is Ending.NO_SOLUTION and len(found) < _MOST_FAULTS:
                guilty = smallest_failing(self._suspects(lines, answer.reason), self._fails)
                fault = _fault(guilty, self._ask(guilty).reason)
                found.append(_with_why(fault, guilty, counted))
                # One of them is enough for the rest; the others may exclude further ones.
                lines = [line for line in lines if line != guilty[-1]]
                answer = self._ask(lines)
        except OutOfTries:
            pass
        return found if found and answer.ending is not Ending.FAILED else [*found, _unsolved(answer)]

    def _suspects(self, lines: list[RequirementLine], reason: str) -> list[RequirementLine]:
        """The lines whose package uv names, if they fail alone; else all."""
        words = {re.sub(r"[-_.]+", "-", word).lower() for word in re.findall(r"[A-Za-z0-9][\w.-]*", reason)}
        named = [line for line in lines if line.name in words]
        return named if named and self._fails(named) else lines

    def _fails(self, lines: Sequence[RequirementLine]) -> bool:
        return self._ask(lines).ending is Ending.NO_SOLUTION

    def _ask(self, lines: Sequence[RequirementLine]) -> Answer:
        self._tries.spend()
        return compile_requirements(lines, self._target, uv=self._uv)


def _fault(guilty: Sequence[RequirementLine], reason: str) -> Finding:
    if len(guilty) == 1:
        return unsatisfied(guilty[0], reason[:_LONGEST_REASON])
    names = {line.name for line in guilty}
    return error(
        "environment_conflict",
        f"{' and '.join(map(str, guilty))}, and no version meets all: {reason[:_LONGEST_REASON]}",
        "take out one of the packs, or take a commit of it whose requirements agree",
        field=names.pop() if len(names) == 1 else None,
    )


def _with_why(fault: Finding, guilty: Sequence[RequirementLine], counted: Mapping[str, str]) -> Finding:
    whys = dict.fromkeys(f"{line.pack} is {counted[line.pack]}" for line in guilty if line.pack in counted)
    if not whys:
        return fault
    remedy = f"say the pack of that class ([packs] in comfyfarm.toml, --node-map), or {fault.remedy}"
    return fault.model_copy(update={"message": f"{fault.message} ({'; '.join(whys)})", "remedy": remedy})


def _unsolved(answer: Answer) -> Finding:
    return error(
        "environment_unsolved",
        f"uv does not solve the Python requirements: {answer.reason[:_LONGEST_REASON]}",
        "give an index or wheelhouse that has them, or allow source distributions to be built",
    )


def _locked(sources: Sequence[PackRequirements], pins: Sequence[Pin], target: Target) -> dict[str, Any]:
    return {
        "version": target.python_version,
        "platform": target.platform,
        "requirements": [
            {"name": pin.name, "version": pin.version, "hashes": [*pin.hashes], "via": [*pin.via]}
            for pin in pins
        ],
        "unsolved": {source.pack: [*source.unsolved] for source in sources if source.unsolved},
        "sources": {source.pack: dict(source.digests) for source in sources},
    }
