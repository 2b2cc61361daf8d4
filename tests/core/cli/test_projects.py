"""`comfyfarm.toml` of several workflows in several folders."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from comfyfarm.cli.projects import load_projects
from comfyfarm.errors import UsageError

Command = Callable[..., Result]

ONE, TWO = "https://github.com/a/One", "https://github.com/b/Two"


def project(folder: Path, text: str) -> str:
    """A folder with that file; the name of a workflow in it."""
    folder.mkdir()
    (folder / "comfyfarm.toml").write_text(text)
    return str(folder / "w.json")


def test_the_choices_of_all_are_one_and_each_keeps_its_policy(tmp_path: Path) -> None:
    first = project(tmp_path / "a", f'[packs]\nX = "{ONE}"\nY = "{TWO}"\n[policy]\nallow_classes = ["X"]\n')
    other = project(tmp_path / "b", f'[packs]\nX = "{ONE}.git"\n')
    found = load_projects(None, [first, other, first])

    assert found.choices == {"X": ONE, "Y": TWO}
    assert [policy.allow_classes for policy in found.policies] == [("X",), None, ("X",)]


@pytest.mark.parametrize("choice", [TWO, f"{ONE}@{'a' * 40}"])
def test_two_choices_for_one_class_are_refused_with_both_files(tmp_path: Path, choice: str) -> None:
    names = [
        project(tmp_path / "a", f'[packs]\nX = "{ONE}"\n'),
        project(tmp_path / "b", f'[packs]\nX = "{choice}"\n'),
    ]

    with pytest.raises(
        UsageError, match=r"a/comfyfarm\.toml and .*b/comfyfarm\.toml choose .* for X"
    ) as caught:
        load_projects(None, names)
    assert ONE in str(caught.value)
    assert choice in str(caught.value)
    (tmp_path / "mine.toml").write_text("")
    assert load_projects(str(tmp_path / "mine.toml"), names).choices == {}


def test_a_lock_of_several_files_holds_each_to_its_own_policy(
    command: Command, picture: Path, upscale: Path, tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text(
        json.dumps(
            [
                {"folder": "upscale_models", "path": path, "sha256": n * 64, "size": 1, "sources": []}
                for n, path in (("1", "sub/a.pth"), ("2", "b.safetensors"))
            ]
        )
    )
    strict = Path(
        project(tmp_path / "strict", '[policy]\nallow_classes = ["EmptyImage"]\nallow_pickle_sha256 = []\n')
    )
    strict.write_bytes(picture.read_bytes())
    words = ["lock", upscale, strict, "--catalog", tmp_path / "c.json", "-o", tmp_path / "l"]
    told = command(*words)

    assert told.exit_code == 1
    # Neither the classes of the other file, nor its pickle.
    assert told.stderr.count("does not allow") == 1
    assert "'SaveImage'" in told.stderr
    assert f"{strict}: the policy does not allow" in told.stderr
    assert "pickle" not in told.stderr
    strict.with_name("comfyfarm.toml").write_text("[policy]\nallow_pickle_sha256 = []\n")
    assert command(*words).exit_code == 0
    (tmp_path / "comfyfarm.toml").write_text("[policy]\nallow_pickle_sha256 = []\n")
    found = json.loads(command(*words, "--json").stdout)["findings"]
    (refused,) = (row for row in found if row["code"] == "pickle_refused")
    assert refused["message"].startswith(f"{upscale}: upscale_models/sub/a.pth ")
