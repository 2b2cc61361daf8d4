"""Real checkouts, made by git in the test."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyfarm.errors import UsageError
from comfyfarm.lock import checkouts
from comfyfarm.lock.checkouts import read_checkouts, read_pack, show
from comfyfarm.lock.git_files import GitFolder, find_git
from comfyfarm.lock.requirement_lines import folder_reader

URL = "https://github.com/a/One"
Git = Callable[..., str]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Git:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    identity = {"NAME": "t", "EMAIL": "t@example.org", "DATE": "2026-01-01T00:00:00Z"}
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
    env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def run(folder: Path, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    return run


def commit(git: Git, folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path, git: Git) -> Path:
    folder = tmp_path / "custom_nodes" / "One"
    folder.mkdir(parents=True)
    git(folder, "init", "-b", "main")
    git(folder, "remote", "add", "origin", "git@github.com:a/One.git")
    return folder


def project(version: str) -> str:
    return f'[project]\nname = "comfyui-one"\nversion = "{version}"\n'


@pytest.mark.parametrize("name", [".git/config", ".git/HEAD", ".git/refs/heads/x", "pyproject.toml"])
def test_a_fifo_in_a_checkout_is_not_waited_for(clone: Path, git: Git, name: str) -> None:
    commit(git, clone, a_py="x")
    (clone / name).unlink(missing_ok=True)
    os.mkfifo(clone / name)
    found = read_pack(clone)

    assert found.folder == "One"
    assert (found.url is None) == name.startswith(".git")


def test_a_device_in_a_checkout_is_not_read(clone: Path, git: Git) -> None:
    commit(git, clone, a_py="x")
    (clone / ".git" / "config").unlink()
    (clone / ".git" / "config").symlink_to("/dev/zero")
    (clone / "requirements.txt").symlink_to("/dev/zero")

    assert read_pack(clone).url is None
    assert folder_reader(clone)("requirements.txt") is None


def test_a_fifo_instead_of_requirements_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "requirements.txt")

    assert folder_reader(tmp_path)("requirements.txt") is None


def test_a_checkout_says_its_address_head_id_and_release(clone: Path, git: Git) -> None:
    head = commit(git, clone, pyproject_toml=project("1.0.0"))
    (found,) = read_checkouts(clone.parent).installed

    assert (found.folder, found.url, found.commit) == ("One", URL, head)
    assert (found.id, found.version, found.history) == ("comfyui-one", "1.0.0", (head,))


def test_address_and_head_need_no_git_program(clone: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(git, clone)
    git(clone, "tag", "v1.0.0")
    monkeypatch.setenv("PATH", "")

    found = read_pack(clone)
    assert (found.url, found.commit, dict(found.releases), found.history) == (URL, head, {}, ())


@pytest.mark.parametrize("state", ["packed", "detached", "worktree", "lost"])
def test_head_is_found_however_git_keeps_it(clone: Path, git: Git, tmp_path: Path, state: str) -> None:
    head = commit(git, clone)
    folder = clone
    if state == "packed":
        git(clone, "pack-refs", "--all")
        assert not (clone / ".git" / "refs" / "heads" / "main").exists()
    elif state == "detached":
        git(clone, "checkout", "--detach")
    elif state == "worktree":
        folder = tmp_path / "custom_nodes" / "Two"
        git(clone, "worktree", "add", "-b", "other", str(folder))
        head = commit(git, folder)
    else:
        (clone / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")

    found = read_pack(folder)
    assert found.commit == (None if state == "lost" else head)
    assert found.url == URL


def test_git_is_asked_for_a_head_that_its_files_do_not_say(
    clone: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit(git, clone)
    # As a store of refs in git's newer form, which an older git cannot make here.
    monkeypatch.setattr(GitFolder, "head", lambda _self: None)

    assert read_pack(clone).commit == head


def test_tags_and_version_lines_say_the_commit_of_a_release(clone: Path, git: Git) -> None:
    first = commit(git, clone, pyproject_toml=project("1.0.0"))
    second = commit(git, clone, pyproject_toml=project("1.1.0"))
    third = commit(git, clone, other_py="x = 1\n")
    git(clone, "tag", "v1.0.1", second)
    git(clone, "tag", "-a", "1.2.0", "-m", "annotated", third)
    git(clone, "tag", "stable", first)

    found = read_pack(clone)
    assert dict(found.releases) == {"1.0.0": first, "1.1.0": second, "1.0.1": second, "1.2.0": third}
    assert set(found.history) == {first, second, third}


def test_a_tag_goes_before_the_line_in_pyproject(clone: Path, git: Git) -> None:
    commit(git, clone, pyproject_toml=project("1.0.0"))
    later = commit(git, clone, other_py="x = 1\n")
    git(clone, "tag", "v1.0.0", later)

    assert read_pack(clone).releases["1.0.0"] == later


def test_a_login_in_the_address_is_dropped(clone: Path, git: Git) -> None:
    git(clone, "remote", "set-url", "origin", "https://me:secret@github.com/a/One.git")
    commit(git, clone)

    assert read_pack(clone).url == URL


def test_another_remote_serves_when_there_is_no_origin(clone: Path, git: Git) -> None:
    git(clone, "remote", "rename", "origin", "upstream")
    commit(git, clone)

    assert read_pack(clone).url == URL


def test_a_pack_of_the_registry_has_no_git_and_says_its_release(tmp_path: Path) -> None:
    folder = tmp_path / "comfyui-two"
    folder.mkdir()
    text = project("2.0.0") + '[project.urls]\nRepository = "https://github.com/b/two"\n'
    (folder / "pyproject.toml").write_text(text)

    found = read_pack(folder)
    assert (found.url, found.commit, found.version) == ("https://github.com/b/two", None, "2.0.0")


@pytest.mark.parametrize("text", ["[project", "project = 3", "[project]\nname = 3\nurls = 3\n", "\udcff"])
def test_a_broken_pyproject_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("utf-8", "surrogateescape"))

    found = read_pack(tmp_path)
    assert (found.id, found.version, found.url) == (None, None, None)


@pytest.mark.parametrize("text", ["", "gitdir:", "gitdir: /nowhere", "\x00"])
def test_a_git_file_that_leads_nowhere_is_no_checkout(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)

    assert find_git(tmp_path) is None


def test_refs_that_go_in_a_circle_or_out_of_the_folder_are_no_commit(tmp_path: Path) -> None:
    own = tmp_path / ".git"
    (own / "refs").mkdir(parents=True)
    for target in ("refs/a", "refs/../../x", "elsewhere"):
        (own / "HEAD").write_text(f"ref: {target}\n")
        (own / "refs" / "a").write_text("ref: refs/a\n")
        found = find_git(tmp_path)
        assert found is not None
        assert found.head() is None


def test_folders_that_are_no_packs_are_passed_over(clone: Path, git: Git) -> None:
    commit(git, clone)
    for name in ("__pycache__", ".disabled"):
        (clone.parent / name).mkdir()
    (clone.parent / "single.py").write_text("")

    assert [pack.folder for pack in read_checkouts(clone.parent).installed] == ["One"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_checkouts(tmp_path / "none")


def test_a_file_is_shown_as_it_was_at_a_commit(clone: Path, git: Git) -> None:
    first = commit(git, clone, requirements_txt="a\n")
    commit(git, clone, requirements_txt="b\n")

    assert show(clone, first, "requirements.txt") == b"a\n"
    assert show(clone, first, "none.txt") is None
    assert show(clone, "0" * 40, "requirements.txt") is None


def test_git_never_runs_what_a_pack_configures(clone: Path, git: Git, tmp_path: Path) -> None:
    head = commit(git, clone, pyproject_toml=project("1.0.0"))
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "diff.x.textconv",
        "core.sshCommand",
        "gpg.program",
    ):
        git(clone, "config", key, str(trap))
    git(clone, "config", "log.showSignature", "true")
    (clone / ".git" / "info").mkdir(exist_ok=True)
    (clone / ".git" / "info" / "attributes").write_text("*.toml diff=x\n")

    assert read_pack(clone).releases == {"1.0.0": head}
    assert not (tmp_path / "sprung").exists()


def test_a_hook_environment_does_not_lead_git_astray(
    clone: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit(git, clone)
    monkeypatch.setenv("GIT_DIR", str(tmp_path))

    assert checkouts.read_pack(clone).history == (head,)
