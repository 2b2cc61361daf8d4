"""Faults by the lines of a job file."""

from comfyfarm.farm.line_faults import LineFaults


def test_each_fault_is_told_once_with_its_first_line_and_how_many_more() -> None:
    faults = LineFaults()
    assert not faults

    for problem, line in [("no a", 2), ("no b", 2), ("no a", 3), ("no a", 9)]:
        faults.add(problem, f"jobs.jsonl line {line}")

    assert faults
    assert str(faults).splitlines() == [
        "jobs.jsonl line 2 and 2 more: no a",
        "jobs.jsonl line 2: no b",
    ]


def test_without_a_job_file_no_line_is_named() -> None:
    faults = LineFaults()
    faults.add("no a", "")
    faults.add("no a", "")

    assert str(faults) == "no a"
