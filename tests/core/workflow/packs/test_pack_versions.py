"""What a node's `ver` is, and which of several is the newest."""

import time

import pytest

from comfyfarm.workflow.packs.versions import VersionKind, by_prefix, classify, newest, plain

A, B = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("ver", "kind"),
    [
        (A, VersionKind.COMMIT),
        (A.upper(), VersionKind.COMMIT),
        ("f" * 39, VersionKind.SHORT),
        ("a5b1c2d", VersionKind.SHORT),
        ("1.2.3", VersionKind.RELEASE),
        ("v1.2.3", VersionKind.RELEASE),
        ("1.0", VersionKind.RELEASE),
        ("1.2.3-beta.1", VersionKind.RELEASE),
        ("1.2.3+cu121", VersionKind.RELEASE),
        ("nightly", VersionKind.NIGHTLY),
        ("unknown", VersionKind.UNKNOWN),
        ("", VersionKind.UNKNOWN),
        ("a" * 41, VersionKind.UNKNOWN),
        ("main", VersionKind.UNKNOWN),
    ],
)
def test_f21_only_forty_hex_digits_are_a_commit(ver: str, kind: VersionKind) -> None:
    assert classify(ver) is kind


def test_the_v_of_a_release_is_dropped_and_that_of_a_word_kept() -> None:
    assert plain(" V1.2.0 ") == "1.2.0"
    assert plain("vae") == "vae"


@pytest.mark.parametrize(
    ("vers", "expected"),
    [
        (["1.9.0", "1.10.0", "1.2.0"], "1.10.0"),
        (["1.0", "v1.0.1"], "1.0.1"),
        (["1.0.0-rc.2", "1.0.0-rc.10"], "1.0.0-rc.10"),
        (["1.0.0-rc.1", "1.0.0"], "1.0.0"),
        (["unknown", "nightly", "0.1.0", A], "0.1.0"),
        ([A, B, A], A),
        ([A, B], B),
        (["nightly"], "nightly"),
        ([], None),
    ],
)
def test_the_newest_of_several_versions(vers: list[str], expected: str | None) -> None:
    assert newest(vers) == expected


def test_a_history_orders_commits() -> None:
    assert newest([A, A, B], history=(B, A)) == B
    assert newest([A, B, B], history=("c" * 40, A)) == A


def test_a_short_commit_is_completed_only_when_one_begins_so() -> None:
    assert by_prefix("aaaa", [A, B]) == A
    assert by_prefix("aaaa", [A, "aaaab" + "0" * 35]) is None
    assert by_prefix("cccc", [A, B]) is None


def test_many_versions_take_no_time() -> None:
    vers = [f"{number:040x}" for number in range(50_000)]
    begun = time.process_time()

    assert newest(vers) == vers[-1]
    assert time.process_time() - begun < 2
