"""`comfyfarm.toml`: found, read, and refused with the key that is wrong."""

from pathlib import Path

import pytest

from comfyfarm.errors import UsageError
from comfyfarm.lock.project_file import ProjectFile, find_project_file, read_project_file
from comfyfarm.workflow.packs.policy import Policy

SHA = "AB" * 32


def read(text: str) -> ProjectFile:
    return read_project_file(text.encode(), name="comfyfarm.toml")


def test_choices_and_policy_are_read() -> None:
    found = read(
        f"""
        [packs]
        "ShowText" = "https://github.com/a/b"
        "Power Lora Loader (rgthree)" = "git@github.com:rgthree/rgthree-comfy.git"
        [policy]
        allow_classes = ["KSampler", "Load*"]
        allow_packs = []
        allow_pickle_sha256 = ["{SHA}"]
        """
    )

    assert found.packs["ShowText"] == "https://github.com/a/b"
    assert len(found.packs) == 2
    assert found.policy == Policy(
        allow_classes=("KSampler", "Load*"), allow_packs=(), allow_pickle_sha256=(SHA.lower(),)
    )


def test_an_empty_file_chooses_nothing_and_lets_everything_in() -> None:
    assert read("") == ProjectFile() == ProjectFile(packs={}, policy=Policy())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pack]\n", ["pack: no such key", "packs may be meant"]),
        ("[policy]\nallow_clases = []\n", ["policy.allow_clases", "allow_classes may be meant"]),
        ("[zzz]\n", ["zzz", "known are packs, policy"]),
        ("packs = 3\n", ["packs: is no table"]),
        ("policy = []\n", ["policy: is no table"]),
        ("[packs]\nX = 3\n", ["packs.X: is no text"]),
        ("[packs]\nAnything.Everywhere = 'https://github.com/a/b'\n", ["packs.Anything", "in quotes"]),
        ("[packs]\nX = 'comfyui-x'\n", ["packs.X", "no address of a git repository"]),
        ("[packs]\nX = 'https://h.org/a/b@main'\n", ["packs.X: @main is no commit; write its 40 hex digits"]),
        ("[packs]\nX = 'https://h.org/a/b.git@v1.2'\n", ["@v1.2 is no commit"]),
        ("[packs]\nX = 'https://me:pw@h.org/a/b@feature/x'\n", ["@feature/x is no commit"]),
        ("[packs]\nX = 'https://h.org/a/b#abc1234'\n", ["#abc1234 is no commit"]),
        ("[packs]\nX = 'git@h.org:a/b@main'\n", ["@main is no commit"]),
        (f"[packs]\nX = 'https://h.org/a/b@main@{'a' * 40}'\n", ["@main is no commit"]),
        ("[policy]\nallow_packs = 'x'\n", ["policy.allow_packs: is no list of texts"]),
        ("[policy]\nallow_classes = [1]\n", ["policy.allow_classes: is no list of texts"]),
        ("[policy]\nallow_pickle_sha256 = ['abc']\n", ["policy.allow_pickle_sha256: 'abc' is no SHA-256"]),
        ("[packs\n", ["not TOML", "line 1"]),
        ("[packs]\n[packs]\n", ["not TOML"]),
    ],
)
def test_a_flaw_is_named_with_its_file_key_and_remedy(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)

    for word in ["comfyfarm.toml: ", *words]:
        assert word in str(caught.value)


def test_all_flaws_are_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read("zzz = 1\n[packs]\nX = 3\n[policy]\nallow_packs = 3\n")

    assert len(str(caught.value).splitlines()) == 3


def test_a_password_in_an_address_is_not_printed() -> None:
    with pytest.raises(UsageError) as caught:
        read("[packs]\nX = 'ftp://me:secret@example.org/x'\n")

    assert "secret" not in str(caught.value)


def test_other_encodings_and_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8 at offset 5"):
        read_project_file(b"x = '\xe9'", name="comfyfarm.toml")
    with pytest.raises(UsageError, match="larger"):
        read_project_file(b"#" * 2_000_000, name="comfyfarm.toml")


def test_the_nearest_file_upwards_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "w.json"
    deep.parent.mkdir(parents=True)
    deep.write_text("{}")
    (tmp_path / "comfyfarm.toml").write_text("")
    assert find_project_file(deep) == tmp_path / "comfyfarm.toml"

    (tmp_path / "a" / "comfyfarm.toml").write_text("")
    assert find_project_file(deep) == tmp_path / "a" / "comfyfarm.toml"
    assert find_project_file(tmp_path) == tmp_path / "comfyfarm.toml"


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a" / "comfyfarm.toml").mkdir(parents=True)
    (tmp_path / "comfyfarm.toml").write_text("")

    assert find_project_file(tmp_path / "a") == tmp_path / "comfyfarm.toml"


@pytest.mark.parametrize(
    "address",
    [
        "git@github.com:a/b.git",
        f"git@github.com:a/b@{'a' * 40}",
        "ssh://git@github.com/a/b",
        "https://me:word@h.org/a/b",
        "https://h.org/@me/b",
        f"https://h.org/a/b#{'A' * 40}",
        "git+https://h.org/a/b.git",
    ],
)
def test_an_at_sign_that_no_commit_follows_may_belong_to_the_address(address: str) -> None:
    assert read(f'[packs]\nX = "{address}"\n').packs == {"X": address}
