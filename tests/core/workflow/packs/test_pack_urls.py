"""One form for every spelling of a repository's address."""

import pytest

from comfyfarm.workflow.packs.urls import (
    from_aux_id,
    masked_id,
    repo_key,
    repo_name,
    repo_url,
    split_commit,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/Kijai/ComfyUI-KJNodes",
        "https://github.com/Kijai/ComfyUI-KJNodes.git",
        "https://github.com/Kijai/ComfyUI-KJNodes/",
        "https://www.github.com/Kijai/ComfyUI-KJNodes/tree/main/nodes",
        "git+https://github.com/Kijai/ComfyUI-KJNodes.git",
        "git@github.com:Kijai/ComfyUI-KJNodes.git",
        "ssh://git@github.com:22/Kijai/ComfyUI-KJNodes",
        "https://user:secret@github.com/Kijai/ComfyUI-KJNodes?token=secret#secret",
    ],
)
def test_every_spelling_of_a_repository_is_one_address(text: str) -> None:
    assert repo_url(text) == "https://github.com/Kijai/ComfyUI-KJNodes"


@pytest.mark.parametrize(
    "text", ["", "comfyui-kjnodes", "file:///etc", "https://github.com", "https://[", "a:b", "x" * 900]
)
def test_what_is_no_repository_has_no_address(text: str) -> None:
    assert repo_url(text) is None


def test_other_hosts_keep_their_whole_path_and_port() -> None:
    assert repo_url("https://git.example.org:8443/a/b/c.git") == "https://git.example.org:8443/a/b/c"


def test_repositories_are_compared_without_capitals_and_named_by_their_last_part() -> None:
    assert repo_key("https://github.com/Kijai/ComfyUI-KJNodes") == "github.com/kijai/comfyui-kjnodes"
    assert repo_name("https://github.com/Kijai/ComfyUI-KJNodes") == "ComfyUI-KJNodes"


def test_an_aux_id_is_a_repository_of_github() -> None:
    assert from_aux_id("kijai/ComfyUI-KJNodes") == "https://github.com/kijai/ComfyUI-KJNodes"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("https://user:hunter2@github.com/a/b", "https://***@github.com/a/b"),
        ("hunter2@github.com/a/b", "***@github.com/a/b"),
        ("user:hunter2@github.com/a/b", "***@github.com/a/b"),
        ("a/b?token=hunter2", "a/b?token=***"),
        ("a b/c", "a b/c"),
    ],
)
def test_an_id_is_printed_without_a_login(text: str, printed: str) -> None:
    assert masked_id(text) == printed


@pytest.mark.parametrize("aux_id", ["", "kijai", "a/b/c", "../x", "a b/c", "https://github.com/a/b"])
def test_an_aux_id_of_another_form_means_nothing(aux_id: str) -> None:
    assert from_aux_id(aux_id) is None


def test_a_commit_may_stand_behind_an_address() -> None:
    assert split_commit(f"https://github.com/a/b@{COMMIT.upper()}") == ("https://github.com/a/b", COMMIT)
    assert split_commit("https://github.com/a/b@main") == ("https://github.com/a/b@main", None)
