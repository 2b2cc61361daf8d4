"""Real uv on a wheelhouse of tiny wheels: pins, hashes, and conflicts that name both sides."""

import hashlib
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.errors import UsageError
from comfyfarm.lock.environment import COMFYUI, Environment, solve_environment
from comfyfarm.lock.requirement_lines import PackRequirements, folder_reader, read_requirements
from comfyfarm.lock.uv_compile import Target, compile_requirements, find_uv
from comfyfarm.workflow.findings import Severity


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "uv-cache"))


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    for version in ("1.26.4", "2.1.0"):
        wheel(folder, "numpy", version)
    wheel(folder, "torch", "2.5.0", "numpy")
    wheel(folder, "oldlib", "1.0", "numpy<2")
    return folder


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {item}\n" for item in requires)
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*files, f"{info}/RECORD"]))
    return path


def needs(tmp_path: Path, pack: str, *lines: str) -> PackRequirements:
    folder = tmp_path / pack
    folder.mkdir()
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    return read_requirements(folder_reader(folder), pack=pack)


def solve(wheelhouse: Path, sources: Sequence[PackRequirements], **more: Any) -> Environment:
    return solve_environment(sources, Target(wheelhouse=wheelhouse, **more))


def errors(found: Environment) -> list[tuple[str, str]]:
    return [(f.code, f.message) for f in found.findings if f.severity is Severity.ERROR]


def test_all_packs_are_solved_together_with_comfyui(tmp_path: Path, wheelhouse: Path) -> None:
    sources = [needs(tmp_path, COMFYUI, "torch", "numpy>=1.25"), needs(tmp_path, "Old", "oldlib")]
    found = solve(wheelhouse, sources, python_version="3.12", platform="windows")

    assert found.findings == ()
    assert found.python is not None
    assert {key: found.python[key] for key in ("version", "platform")} == {
        "version": "3.12",
        "platform": "windows",
    }
    pins = {pin["name"]: pin for pin in found.python["requirements"]}
    assert {name: pin["version"] for name, pin in pins.items()} == {
        "numpy": "1.26.4",
        "oldlib": "1.0",
        "torch": "2.5.0",
    }
    assert set(pins["numpy"]["via"]) == {COMFYUI, "oldlib", "torch"}
    digest = hashlib.sha256((wheelhouse / "numpy-1.26.4-py3-none-any.whl").read_bytes()).hexdigest()
    assert pins["numpy"]["hashes"] == [f"sha256:{digest}"]
    assert found.python["sources"]["Old"] == dict(sources[1].digests)


def test_a_conflict_names_both_packs_and_both_constraints(tmp_path: Path, wheelhouse: Path) -> None:
    sources = [
        needs(tmp_path, COMFYUI, "torch"),
        needs(tmp_path, "New", "torch", "numpy>=2"),
        needs(tmp_path, "Old", "numpy<2"),
    ]
    found = solve(wheelhouse, sources)

    assert found.python is None
    ((code, message),) = errors(found)
    assert code == "environment_conflict"
    assert "New requires numpy>=2 (requirements.txt:2)" in message
    assert "Old requires numpy<2 (requirements.txt:1)" in message
    assert COMFYUI not in message
    assert found.findings[-1].field == "numpy"


def test_a_conflict_through_another_package_names_both_packs(tmp_path: Path, wheelhouse: Path) -> None:
    sources = [
        needs(tmp_path, COMFYUI, "torch", "numpy>=1.25"),
        needs(tmp_path, "Old", "torch>=2", "oldlib"),
        needs(tmp_path, "New", "numpy>=2"),
    ]
    ((code, message),) = errors(solve(wheelhouse, sources))

    assert code == "environment_conflict"
    assert "Old requires oldlib (requirements.txt:2)" in message
    assert "New requires numpy>=2 (requirements.txt:1)" in message
    assert "oldlib depend" in message


def test_each_conflict_is_named(tmp_path: Path, wheelhouse: Path) -> None:
    sources = [
        needs(tmp_path, "A", "numpy<2", "torch<2"),
        needs(tmp_path, "B", "numpy>=2", "torch>2"),
        needs(tmp_path, "C", "nowhere>=1"),
    ]
    wheel(wheelhouse, "torch", "1.0")
    found = errors(solve(wheelhouse, sources))

    assert sorted(code for code, _ in found) == [
        "environment_conflict",
        "environment_conflict",
        "requirement_unsatisfied",
    ]
    assert any("A requires torch<2" in message and "B requires torch>2" in message for _, message in found)
    assert any("C requires nowhere>=1" in message for _, message in found)


def test_what_nothing_meets_is_no_conflict(tmp_path: Path, wheelhouse: Path) -> None:
    ((code, message),) = errors(
        solve(wheelhouse, [needs(tmp_path, "A", "numpy>=99"), needs(tmp_path, "B", "torch")])
    )

    assert code == "requirement_unsatisfied"
    assert "A requires numpy>=99" in message


def test_a_package_that_needs_another_python_is_named(tmp_path: Path, wheelhouse: Path) -> None:
    source = needs(tmp_path, "A", 'numpy>=2 ; python_version < "3.12"', 'numpy<2 ; python_version >= "3.12"')

    for version, expected in (("3.11", "2.1.0"), ("3.12", "1.26.4")):
        found = solve(wheelhouse, [source], python_version=version)
        assert found.python is not None
        assert [pin["version"] for pin in found.python["requirements"]] == [expected]


def test_a_line_that_only_uv_refuses_is_left_out(tmp_path: Path, wheelhouse: Path) -> None:
    sources = [
        needs(tmp_path, "A", "torch", "numpy ; python_verson > '3'", "numpy<2"),
        needs(tmp_path, "B", "numpy"),
    ]
    found = solve(wheelhouse, sources)

    assert [(f.code, f.severity) for f in found.findings] == [("bad_requirement", Severity.WARNING)]
    assert "A: requirements.txt:2" in found.findings[0].message
    assert "python_verson" in found.findings[0].message
    assert found.python is not None
    assert {pin["version"] for pin in found.python["requirements"]} == {"1.26.4", "2.5.0"}


def test_findings_of_the_packs_are_handed_on(tmp_path: Path, wheelhouse: Path) -> None:
    found = solve(wheelhouse, [needs(tmp_path, "A", "git+https://github.com/a/b", "numpy")])

    assert [f.code for f in found.findings] == ["requirement_from_url"]
    assert found.python is not None
    assert found.python["unsolved"] == {"A": ["git+https://github.com/a/b"]}


def test_nothing_to_require_is_solved(wheelhouse: Path) -> None:
    found = solve(wheelhouse, [PackRequirements("A")])

    assert found.python is not None
    assert found.python["requirements"] == []


def test_a_source_distribution_is_not_built(tmp_path: Path, wheelhouse: Path) -> None:
    trap = tmp_path / "sprung"
    (wheelhouse / "evil-1.0.tar.gz").write_bytes(source_distribution(tmp_path, trap))
    found = errors(solve(wheelhouse, [needs(tmp_path, "A", "evil")]))

    assert found[0][0] in {"requirement_unsatisfied", "environment_unsolved"}
    assert not trap.exists()


def source_distribution(tmp_path: Path, trap: Path) -> bytes:
    folder = tmp_path / "evil-1.0"
    folder.mkdir()
    (folder / "setup.py").write_text(
        f"open({str(trap)!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1.0')\n"
    )
    (folder / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: evil\nVersion: 1.0\n")
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "evil-1.0")
    return path.read_bytes()


def test_a_wheelhouse_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder of wheels"):
        solve(tmp_path / "none", [PackRequirements("A")])


def test_without_uv_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))

    with pytest.raises(UsageError, match="uv is not installed"):
        find_uv()


def test_uv_is_found_beside_python_when_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert find_uv().name.startswith("uv")


def test_an_index_with_a_login_is_never_printed(
    tmp_path: Path, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://me:secret@127.0.0.1:9/simple")
    lines = needs(tmp_path, "A", "numpy>=99").lines

    assert "secret" not in str(compile_requirements(lines, Target(wheelhouse=wheelhouse), uv=find_uv()))
