"""What changed between locks, and names looked up anew."""

from typing import Any

import pytest

from comfyfarm.errors import NamesMissing
from comfyfarm.lock.catalogue import Catalogue
from comfyfarm.lock.diff import diff
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedPack, LockedRepo, Missing
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.lock.update import update_lock


def model(sample: Any, path: str, content: str = "x", **more: Any) -> LockedModel:
    raw = {"folder": "vae", "path": path, "sha256": sample.sha(content), "size": len(content), **more}
    return LockedModel.model_validate(raw)


def test_a_lock_does_not_differ_from_itself_in_another_order(sample: Any) -> None:
    models = (model(sample, "a"), model(sample, "b"))

    assert diff(Lock(models=models), Lock(models=models[::-1])) == ()


def test_every_difference_is_said_in_one_line(sample: Any) -> None:
    pack = LockedPack(name="p", url="u", commit="1" * 40)
    old = Lock(models=(model(sample, "a"), model(sample, "b")), packs=(pack,), comfyui="0.26")
    new = Lock(
        models=(model(sample, "b", "new"), model(sample, "c")),
        packs=(pack.model_copy(update={"commit": "2" * 40}),),
        repos=(LockedRepo(id="r", revision="3"),),
        missing=(Missing(kind="pack", name="q", reason="why"),),
        comfyui="0.27",
    )

    assert [str(change) for change in diff(old, new)] == [
        f"- models vae/a  {sample.sha('x')}, 1 bytes",
        f"~ models vae/b sha256: {sample.sha('x')} → {sample.sha('new')}",
        "~ models vae/b size: 1 → 3",
        f"+ models vae/c  {sample.sha('x')}, 1 bytes",
        "+ repos r  3",
        f"~ packs p u commit: {'1' * 40} → {'2' * 40}",
        "+ missing pack q  why",
        "~ comfyui: 0.26 → 0.27",
    ]
    assert len(diff(new, old)) == len(diff(old, new))


def test_no_login_or_token_of_a_source_is_printed(sample: Any) -> None:
    secret = "https://me:hunter2@h/x?token=hunter2"
    old, new = Lock(models=(model(sample, "a"),)), Lock(models=(model(sample, "a", sources=(secret,)),))

    for changes in (diff(old, new), diff(Lock(), new)):
        assert "***" in changes[0].model_dump_json()
        assert "hunter2" not in changes[0].model_dump_json() + str(changes[0])


def test_an_update_takes_the_new_content_and_keeps_what_it_does_not_know(sample: Any) -> None:
    lock = Lock.model_validate(
        {
            "future": 1,
            "models": [
                model(sample, "a", sources=("old",), licence="MIT", header={"tensors": 1}).model_dump(),
                model(sample, "b", sources=("old",)).model_dump(),
            ],
        }
    )
    catalogue = sample.catalogue(
        sample.entry("vae", "a", content="new", sources=("here",)),
        sample.entry("vae", "b", sources=("here",)),
    )
    found = update_lock(lock, catalogue)

    assert found.model_extra == {"future": 1}
    assert found.models[0].model_dump() == {
        "folder": "vae", "path": "a", "sha256": sample.sha("new"), "size": 3, "sources": ("here",),
        "header": None, "licence": "MIT",
    }  # fmt: skip
    assert (found.models[1].sha256, found.models[1].sources) == (sample.sha("x"), ("here", "old"))


@pytest.mark.parametrize("name", ["vae/sub/a", "sub/a", "a"])
def test_only_the_named_are_looked_up(sample: Any, name: str) -> None:
    lock = Lock(models=(model(sample, "sub/a"), model(sample, "b")))
    catalogue = sample.catalogue(sample.entry("vae", "sub/a", content="new"))

    assert [m.size for m in update_lock(lock, catalogue, names=[name]).models] == [3, 1]
    with pytest.raises(NamesMissing, match="the lock does not have these names:\n  zzz"):
        update_lock(lock, catalogue, names=[name, "zzz"])
    with pytest.raises(Unresolved, match="of the lock:\n  vae/b"):
        update_lock(lock, catalogue)


def test_of_several_contents_the_locked_one_stays_else_it_is_ambiguous(sample: Any) -> None:
    entries = [sample.entry("vae", "a", content=text) for text in ("x", "new")]
    lock = Lock(models=(model(sample, "a"),))

    assert update_lock(lock, sample.catalogue(*entries)).models[0].sha256 == sample.sha("x")
    with pytest.raises(Unresolved, match="ambiguous_hash: vae/a stands for several contents"):
        update_lock(Lock(models=(model(sample, "a", "third"),)), sample.catalogue(*entries))


def test_a_hub_repository_moves_to_the_catalogues_revision() -> None:
    def catalogue(*revisions: str) -> Catalogue:
        return Catalogue(repos=tuple(LockedRepo(id="a/b", revision=one) for one in revisions))

    lock = Lock.model_validate({"repos": [{"id": "a/b", "revision": "1", "note": "n"}]})

    assert update_lock(lock, catalogue("2")).repos[0].model_dump() == {
        "id": "a/b",
        "revision": "2",
        "note": "n",
    }
    assert update_lock(lock, catalogue("2", "1")) == lock
    with pytest.raises(Unresolved, match="ambiguous_revision"):
        update_lock(lock, catalogue("2", "3"))
    with pytest.raises(Unresolved, match=r"a/b \(a hub repo\)"):
        update_lock(lock, catalogue())


def test_a_python_environment_says_which_pins_differ() -> None:
    def lock(version: str, *pins: tuple[str, str, str]) -> Lock:
        rows = [{"name": name, "version": one, "hashes": [digest], "via": []} for name, one, digest in pins]
        return Lock.model_validate(
            {"python": {"platform": "linux", "requirements": rows, "version": version}}
        )

    many = [(f"a{number}", "1", "h") for number in range(30)]
    old = lock("3.11", *many, ("numpy", "1", "h"), ("pillow", "2", "h"), ("torch", "3", "h"))
    new = lock("3.12", *many, ("numpy", "2", "h"), ("pillow", "2", "other"), ("scipy", "4", "h"))

    assert [str(change) for change in diff(old, new)] == [
        "~ python: version 3.11 → 3.12, numpy 1 → 2, pillow differs, scipy nothing → 4, torch 3 → nothing"
    ]
    assert "and 10 more" in str(diff(lock("3.11"), lock("3.11", *many))[0])


def test_texts_that_differ_behind_the_cut_are_not_shown_twice(sample: Any) -> None:
    sources = ["https://h/" + "x" * 200 + end for end in "ab"]
    old, new = (Lock(models=(model(sample, "a", sources=(source,)),)) for source in sources)

    assert [str(change) for change in diff(old, new)] == ["~ models vae/a sources: differs"]


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [("0.27", "0.27.0", 0), ("v0.27.1", "0.27", 0), ("0.27.0", "0.27.1", 1), (None, "0.27", 1)],
)
def test_a_shorter_version_of_comfyui_stands_for_all_that_begin_so(
    old: str | None, new: str, number: int
) -> None:
    assert len(diff(Lock(comfyui=old), Lock(comfyui=new))) == number
