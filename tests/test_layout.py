"""Rules on files, which no other tool checks."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyfarm import __version__
from comfyfarm.cli import main

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["comfyfarm", "flows", "blocks", "deployments", "infra", "fake_server", "benchmarks"]
MOST_LINES = 500


def modules(*folders: str) -> Iterator[Path]:
    """Our own Python files."""
    for folder in folders:
        yield from (file for file in sorted((ROOT / folder).rglob("*.py")) if "_app" not in file.parts)


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def test_there_is_something_to_look_at() -> None:
    assert len(list(modules(*PACKAGES))) > 150
    assert len(list(modules("tests"))) > 50


def test_no_module_is_longer_than_500_lines() -> None:
    long = {
        relative(file): lines
        for file in modules(*PACKAGES)
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }

    assert long == {}


def test_every_module_says_what_is_true_of_it() -> None:
    silent = [
        relative(file)
        for file in modules(*PACKAGES)
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]

    assert silent == []


def test_no_module_of_the_application_shadows_the_standard_library() -> None:
    # Prefect puts the folder of a flow on the path: a `queue.py` there breaks everything else.
    names = {file.stem for folder in ("flows", "blocks", "deployments") for file in modules(folder)}

    assert names & sys.stdlib_module_names == set()


def test_nothing_waits_with_wait_for() -> None:
    # On Python 3.11 it swallows a cancel that comes just when the awaited thing is done: a render that
    # was told to stop went on for ever. `asyncio.timeout` does not.
    users = [
        relative(file)
        for file in modules("comfyfarm", "flows", "blocks", "deployments")
        if "asyncio.wait_for" in file.read_text(encoding="utf-8")
    ]

    assert users == []


def test_flows_define_no_class() -> None:
    # An entrypoint by path loads the file a second time, so each class in it would have two identities.
    classes = [
        f"{relative(file)}: {node.name}"
        for file in modules("flows")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]

    assert classes == []


def test_the_tests_are_no_packages() -> None:
    # pytest imports each by its path, so that none can come to lean on another.
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert versions[0].strip("[]") == __version__


def test_help_loads_neither_prefect_nor_sqlalchemy() -> None:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", str(Path(sys.executable).with_name("comfyfarm")), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}

    assert "click" in loaded
    assert loaded & {"prefect", "sqlalchemy", "httpx", "pydantic", "obstore", "rich", "PIL"} == set()
    for name in main.list_commands(None):  # type: ignore[arg-type]
        assert re.search(rf"^\s+{name}\s", run.stdout, re.MULTILINE), name


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", *sorted(
    relative(file) for file in (ROOT / "docs").glob("*.md")
)])  # fmt: skip
def test_every_command_of_a_document_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL))
    targets = set(re.findall(r"(?<![\w/-])(?<!batch )make ([a-z]+)", code))
    commands = set(re.findall(r"(?<![\w/-])comfyfarm ([a-z][a-z-]*)", code))
    known = set(main.list_commands(None))  # type: ignore[arg-type]

    assert targets <= make_targets(), document
    assert commands <= known, document
    if document == "README.md":
        assert {"demo", "check"} <= targets
        assert {"preflight", "lock", "render", "results", "health", "dead-letters", "batch"} <= commands


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):(?!=)", text, re.MULTILINE))


def test_the_makefile_names_its_targets_as_phony() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY:(.*)$", text, re.MULTILINE)[0].split())

    assert make_targets() == phony
