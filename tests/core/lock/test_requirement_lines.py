"""Requirements of packs as they are really written."""

import hashlib
from pathlib import Path

import pytest

from comfyfarm.lock.requirement_lines import (
    LIMIT_BYTES,
    PackRequirements,
    RequirementLine,
    folder_reader,
    read_requirements,
)


def read(folder: Path, **files: str | bytes) -> PackRequirements:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_toml", ".toml")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_requirements(folder_reader(folder), pack="One")


def texts(found: PackRequirements) -> list[str]:
    return [line.text for line in found.lines]


def codes(found: PackRequirements) -> list[str]:
    return [finding.code for finding in found.findings]


def test_plain_lines_are_kept_with_their_places(tmp_path: Path) -> None:
    text = (
        "# comment\n\nnumpy<2  # why\nPillow >= 9.1, != 9.3.0\n"
        "torch[cuda]~=2.0 ; sys_platform == 'linux'\nscipy (>=1)\n"
    )
    found = read(tmp_path, requirements_txt=text)

    assert texts(found) == [
        "numpy<2",
        "Pillow >= 9.1, != 9.3.0",
        "torch[cuda]~=2.0 ; sys_platform == 'linux'",
        "scipy (>=1)",
    ]
    assert [line.line for line in found.lines] == [3, 4, 5, 6]
    assert [line.name for line in found.lines] == ["numpy", "pillow", "torch", "scipy"]
    assert dict(found.digests) == {"requirements.txt": hashlib.sha256(text.encode()).hexdigest()}
    assert found.findings == ()


def test_names_are_compared_as_indexes_do() -> None:
    assert RequirementLine("One", "Ruamel.YAML_x>=1", "f", 1).name == "ruamel-yaml-x"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_the_encodings_of_windows_are_read(tmp_path: Path, encoding: str) -> None:
    found = read(tmp_path, requirements_txt="numpy\r\n# é\r\nscipy\r\n".encode(encoding))

    assert texts(found) == ["numpy", "scipy"]


def test_lines_that_go_on_and_hashes_are_understood(tmp_path: Path) -> None:
    text = "numpy==1.26.4 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nscipy\\\n"
    found = read(tmp_path, requirements_txt=text)

    assert texts(found) == ["numpy==1.26.4", "scipy"]
    assert [line.line for line in found.lines] == [1, 4]


def test_an_include_is_followed_inside_the_pack_once(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        requirements_txt="-r sub/more.txt\n--requirement=requirements.txt\nnumpy\n",
        sub__more_txt="-r ../requirements.txt\nscipy\n",
    )

    assert sorted(texts(found)) == ["numpy", "scipy"]
    assert found.findings == ()


def test_an_include_out_of_the_pack_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret-package\n")
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "link.txt").symlink_to(tmp_path / "secret.txt")
    found = read(pack, requirements_txt="-r ../secret.txt\n-r link.txt\n-r /etc/passwd\n-r none.txt\nnumpy\n")

    assert texts(found) == ["numpy"]
    assert codes(found) == ["bad_requirement"] * 4


@pytest.mark.parametrize(
    "line",
    [
        "git+https://github.com/a/b.git@main",
        "b @ https://example.org/b-1.0-py3-none-any.whl",
        "b[x] @ git+ssh://git@github.com/a/b",
        "./wheels/b.whl",
        "https://example.org/b.zip",
        "git+https://me:secret@github.com/a/b",
        "b @ https://example.org/b.whl?token=secret",
    ],
)
def test_what_comes_from_an_address_is_said_and_not_solved(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, requirements_txt=f"{line}\nnumpy\n")

    assert texts(found) == ["numpy"]
    assert codes(found) == ["requirement_from_url"]
    assert len(found.unsolved) == 1
    assert "secret" not in str(found)


def test_an_address_is_kept_as_it_is_but_for_its_login(tmp_path: Path) -> None:
    found = read(
        tmp_path, requirements_txt="b @ git+https://github.com/a/b@main\ngit+https://u:p@github.com/a/c\n"
    )

    assert found.unsolved == ("b @ git+https://github.com/a/b@main", "git+https://***@github.com/a/c")


@pytest.mark.parametrize(
    "line",
    ["--extra-index-url https://me:secret@example.org/simple", "-e .", "--pre", "-f wheels", "-c other.txt"],
)
def test_options_are_said_and_not_followed(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, requirements_txt=f"{line}\nnumpy\n")

    assert texts(found) == ["numpy"]
    assert codes(found) == ["requirement_option"]
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "line", ["numpy<<2", "numpy=1", "pip install numpy", "<html>", "numpy>=1,", ">=2", "ünicode", "a b"]
)
def test_a_broken_line_is_left_out_and_named(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, requirements_txt=f"scipy\n{line}\n")

    if line == "numpy>=1,":  # pip and uv take it
        assert texts(found) == ["scipy", line]
        return
    assert texts(found) == ["scipy"]
    assert codes(found) == ["bad_requirement"]
    assert "requirements.txt:2" in found.findings[0].message


def test_without_requirements_the_dependencies_of_the_project_count(tmp_path: Path) -> None:
    found = read(
        tmp_path, pyproject_toml='[project]\ndependencies = [\n "numpy<2",\n "b @ https://x.org/b.whl", 3]\n'
    )

    assert texts(found) == ["numpy<2"]
    assert (found.lines[0].file, found.lines[0].line) == ("pyproject.toml", 3)
    assert codes(found) == ["requirement_from_url"]


def test_requirements_go_before_the_project(tmp_path: Path) -> None:
    found = read(tmp_path, requirements_txt="", pyproject_toml='[project]\ndependencies = ["numpy"]\n')

    assert texts(found) == []
    assert list(found.digests) == ["requirements.txt"]


@pytest.mark.parametrize("text", ["[project", "project = 3\n", "[project]\ndependencies = 3\n"])
def test_a_broken_project_requires_nothing(tmp_path: Path, text: str) -> None:
    assert texts(read(tmp_path, pyproject_toml=text)) == []


def test_a_pack_without_either_requires_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == PackRequirements("One")


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    found = read(tmp_path, requirements_txt=b"#" * (LIMIT_BYTES + 1))

    assert codes(found) == ["bad_requirement"]
    assert texts(found) == []
