"""What an error says of its findings: what stopped the workflow, and nothing beside it."""

import pickle

from comfyfarm.workflow.findings import Refused, error, info, warning

INFO, WARNING, ERROR = info("a", "an aside", "x"), warning("b", "a doubt", "y"), error("c", "a fault", "z")


def test_only_errors_are_told_and_warnings_where_there_is_none() -> None:
    assert str(Refused("w.json", [INFO, WARNING, ERROR])) == "w.json: a fault; z"
    assert str(Refused("w.json", [INFO, WARNING])) == "w.json: a doubt; y"
    assert str(Refused("w.json", [])) == ""


def test_all_findings_are_kept() -> None:
    twin = pickle.loads(pickle.dumps(Refused("w.json", [INFO, ERROR])))  # noqa: S301

    assert twin.findings == (INFO, ERROR)
