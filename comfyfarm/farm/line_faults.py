"""What is wrong with jobs, each thing once, with the lines of the job file that have it."""

from collections.abc import Iterator, Sequence


class LineFaults:
    """Collects what is wrong, in the order in which it was found. False while nothing is.

    A value that is wrong is as a rule so on many lines: the first of them is named, the others counted.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, problem: str, line: str) -> None:
        """One more line that has this problem.

        Args:
            problem: what is wrong, on one line.
            line: where, such as `jobs.jsonl line 3`; empty where there is no job file.
        """
        self._lines.setdefault(problem, []).append(line)

    def __str__(self) -> str:
        return "\n".join(self._told())

    def _told(self) -> Iterator[str]:
        for problem, lines in self._lines.items():
            yield _place(lines) + problem


def _place(lines: Sequence[str]) -> str:
    if not lines[0]:
        return ""
    others = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]}{others}: "
