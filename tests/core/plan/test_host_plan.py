"""What a lock needs of a host, and when that cannot be."""

import hashlib
from typing import Any

import pytest

from comfyfarm.lock.lockfile import Lock, LockedModel, LockedPack, Missing
from comfyfarm.plan.host_plan import HostFacts, HostPlan, bytes_text, plan_host
from comfyfarm.plan.vram import ALLOWANCE_BYTES, estimate_vram, weight_bytes

GIB = 1 << 30


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def model(name: str, size: int, *, content: str | None = None, **dtypes: int) -> LockedModel:
    folder, _, path = name.partition("/")
    header = {"dtypes": {kind: {"tensors": 1, "bytes": size} for kind, size in dtypes.items()}}
    return LockedModel.model_validate(
        {
            "folder": folder, "path": path, "sha256": sha(content or name), "size": size, "sources": ["s"],
            "header": header if dtypes else None,
        }
    )  # fmt: skip


def codes(plan: HostPlan, severity: str = "error") -> list[str]:
    return [finding.code for finding in plan.findings if finding.severity == severity]


FLUX = (
    model("diffusion_models/flux.safetensors", 12 * GIB, F8_E4M3=12 * GIB - 1000),
    model("text_encoders/t5.safetensors", 5 * GIB, F8_E4M3=5 * GIB - 1000),
    model("text_encoders/clip_l.safetensors", GIB // 4, F16=GIB // 4 - 1000),
    model("vae/ae.safetensors", GIB // 3, F32=GIB // 3 - 1000),
    model("loras/x.safetensors", GIB, F16=GIB - 1000),
)


def test_each_content_is_fetched_once_the_largest_first() -> None:
    lock = Lock(
        models=(
            model("vae/a.pt", 3),
            model("checkpoints/b.pt", 9, content="same"),
            model("diffusion_models/b.pt", 9, content="same"),
            model("loras/here.pt", 100),
        )
    )
    plan = plan_host(lock, HostFacts(cached=frozenset({sha("loras/here.pt")}), disk_free_bytes=2 * GIB))

    assert plan.fetch == (sha("same"), sha("vae/a.pt"))
    assert (plan.fetch_bytes, plan.reuse_bytes, plan.evict_bytes) == (12, 100, 0)
    assert plan.fits
    assert codes(plan, "warning") == []


@pytest.mark.parametrize(
    ("free", "errors", "warnings"),
    [(None, [], []), (3 * GIB, [], []), (GIB + 5, [], ["disk_tight"]), (GIB - 1, ["disk_full"], [])],
)
def test_a_disk_without_room_is_refused(free: int | None, errors: list[str], warnings: list[str]) -> None:
    plan = plan_host(Lock(models=(model("vae/a.pt", GIB),)), HostFacts(disk_free_bytes=free))

    assert (codes(plan), codes(plan, "warning"), plan.fits) == (errors, warnings, not errors)


def test_a_full_disk_is_no_fault_when_everything_is_here() -> None:
    facts = HostFacts(cached=frozenset({sha("vae/a.pt")}), disk_free_bytes=0)

    assert plan_host(Lock(models=(model("vae/a.pt", GIB),)), facts).fits


def test_a_quota_makes_room_or_is_too_small_for_the_lock_itself() -> None:
    lock = Lock(models=(model("vae/a.pt", 60), model("vae/b.pt", 30)))
    facts = HostFacts(cached=frozenset({sha("vae/a.pt")}), cache_bytes=90, quota_bytes=100, disk_free_bytes=0)
    full = plan_host(lock, facts.model_copy(update={"cache_bytes": 80}))
    roomy = plan_host(lock, facts.model_copy(update={"disk_free_bytes": 2 * GIB}))

    assert (full.evict_bytes, codes(full)) == (20, ["disk_full"])  # 20 come free, 30 have to come
    assert (roomy.evict_bytes, codes(roomy)) == (20, [])
    tight = plan_host(lock, facts)  # the 30 of others make room on the disk, too
    assert (tight.evict_bytes, codes(tight), codes(tight, "warning")) == (30, [], ["disk_tight"])
    small = plan_host(lock, facts.model_copy(update={"quota_bytes": 89, "disk_free_bytes": 2 * GIB}))
    assert codes(small) == ["quota_short"]


def test_what_others_pinned_or_use_makes_no_room() -> None:
    lock = Lock(models=(model("vae/a.pt", 60),))
    facts = HostFacts(cache_bytes=40, stuck_bytes=30, quota_bytes=89, disk_free_bytes=2 * GIB)
    (short,) = (found for found in plan_host(lock, facts).findings if found.code == "quota_short")

    assert "30 bytes are pinned or in use by others" in short.message
    assert plan_host(lock, facts.model_copy(update={"quota_bytes": 90})).evict_bytes == 10
    full = facts.model_copy(update={"quota_bytes": None, "disk_free_bytes": 49})
    assert codes(plan_host(lock, full)) == ["disk_full"]
    assert codes(plan_host(lock, full.model_copy(update={"disk_free_bytes": 50}))) == []


def test_what_is_to_stay_free_is_no_room() -> None:
    lock = Lock(models=(model("vae/a.pt", GIB),))
    facts = HostFacts(disk_free_bytes=3 * GIB, keep_free_bytes=2 * GIB)

    assert codes(plan_host(lock, facts)) == []
    full = plan_host(lock, facts.model_copy(update={"keep_free_bytes": 2 * GIB + 1}))
    assert codes(full) == ["disk_full"]
    assert "of which 2.00 GiB are to stay so" in full.findings[0].message


def test_vram_is_that_of_the_largest_step_and_not_the_sum() -> None:
    found = estimate_vram(FLUX)

    assert (found.stage, found.models) == ("model", ("diffusion_models/flux.safetensors",))
    assert found.bytes == 12 * GIB - 1000 + ALLOWANCE_BYTES
    assert estimate_vram(FLUX[1:]).models == ("text_encoders/t5.safetensors",)
    assert estimate_vram(FLUX[3:]).models == ("vae/ae.safetensors",)
    assert (estimate_vram(FLUX[4:]).bytes, estimate_vram(()).stage) == (0, "none")


def test_what_is_loaded_beside_the_model_counts_with_it_and_of_each_kind_once() -> None:
    beside = (
        model("controlnet/a.safetensors", 3 * GIB),
        model("controlnet/b.safetensors", 2 * GIB),
        model("model_patches/c.safetensors", GIB),
        model("checkpoints/small.safetensors", 4 * GIB),
    )

    assert estimate_vram((*FLUX, *beside)).models == (
        "diffusion_models/flux.safetensors",
        "controlnet/a.safetensors",
        "model_patches/c.safetensors",
    )


def test_wide_weights_count_as_16_bit_and_files_without_header_by_size() -> None:
    assert weight_bytes(model("unet/x.safetensors", 100, F32=60, F16=20, F64=16, I8=4)) == 30 + 20 + 4 + 4
    assert weight_bytes(model("unet/x.ckpt", 100)) == 100
    assert estimate_vram([model("unet/x.ckpt", 100)]).unknown == ("unet/x.ckpt",)
    assert estimate_vram([model("unet/README.md", 100)]).bytes == 0


@pytest.mark.parametrize(
    "header", [None, 3, {}, {"dtypes": []}, {"dtypes": {"F16": 3}}, {"dtypes": {"F16": {"bytes": 10**9}}}]
)
def test_a_header_that_cannot_be_believed_is_none(header: Any) -> None:
    raw = model("unet/x.safetensors", 100).model_dump() | {"header": header}

    assert weight_bytes(LockedModel.model_validate(raw)) == 100


@pytest.mark.parametrize(("vram", "errors"), [(None, []), (24 * GIB, []), (12 * GIB, ["vram_short"])])
def test_a_gpu_that_is_too_small_is_refused_with_the_files_named(vram: int | None, errors: list[str]) -> None:
    plan = plan_host(Lock(models=FLUX), HostFacts(name="box", vram_bytes=vram))

    assert codes(plan) == errors
    if errors:
        assert "diffusion_models/flux.safetensors" in plan.findings[0].message
        assert "box has 12.00 GiB" in plan.findings[0].message


def test_packs_are_installed_or_changed_whatever_the_spelling_of_their_address() -> None:
    packs = [LockedPack(name=n, url=f"https://github.com/me/{n}", commit=n * 40) for n in "abcd"]
    here = {
        "git@github.com:Me/a.git": "a" * 40,
        "https://github.com/me/b": "f" * 40,
        "https://github.com/me/c": None,
        "https://github.com/me/other": "1" * 40,
    }
    plan = plan_host(Lock(packs=tuple(packs)), HostFacts(packs=here))

    assert [pack.name for pack in plan.install] == ["d"]
    assert [(pack.name, pack.installed) for pack in plan.change] == [("b", "f" * 40), ("c", None)]
    assert [pack.name for pack in plan_host(Lock(packs=tuple(packs)), HostFacts()).install] == list("abcd")


def test_files_in_the_way_are_refused_and_what_is_not_pinned_is_said() -> None:
    lock = Lock(missing=(Missing(kind="pack", name="p", reason="no commit"),), comfyui="0.27")
    plan = plan_host(lock, HostFacts(foreign=("vae/x.pt",), comfyui="0.26.1"))

    assert codes(plan) == ["foreign_file"]
    assert codes(plan, "warning") == ["not_pinned", "comfyui_differs"]


@pytest.mark.parametrize("version", ["0.27", "0.27.3", "v0.27.0"])
def test_a_release_of_the_locked_version_is_no_difference(version: str) -> None:
    assert plan_host(Lock(comfyui="0.27"), HostFacts(comfyui=version)).findings == ()


def test_a_file_without_a_source_is_said_when_it_has_to_be_fetched() -> None:
    bare = model("vae/a.pt", 1).model_copy(update={"sources": ()})

    assert codes(plan_host(Lock(models=(bare,)), HostFacts()), "warning") == ["no_source"]
    here = HostFacts(cached=frozenset({bare.sha256}))
    assert codes(plan_host(Lock(models=(bare,)), here), "warning") == []


def test_content_that_is_in_place_under_one_name_is_fetched_for_another() -> None:
    twins = (model("vae/a.pt", 7, content="same"), model("vae/b.pt", 7, content="same"))
    one = plan_host(Lock(models=twins), HostFacts(in_place=frozenset({"vae/a.pt"})))
    both = plan_host(
        Lock(models=twins), HostFacts(in_place=frozenset({"vae/a.pt", "vae/b.pt"}), quota_bytes=0)
    )

    assert (one.fetch_bytes, one.reuse_bytes) == (7, 0)
    assert (both.fetch_bytes, both.reuse_bytes, both.fits) == (0, 7, True)
    assert codes(both, "info")[:2] == ["in_place", "in_place"]


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 bytes"), (1, "1 byte"), (473, "473 bytes"), (1 << 10, "1.0 KiB"), (5 << 19, "2.5 MiB"),
     (3 << 29, "1.50 GiB")],
)  # fmt: skip
def test_small_sizes_are_not_rounded_to_nothing(size: int, said: str) -> None:
    assert bytes_text(size) == said


def test_no_remedy_names_a_command_that_is_not_there() -> None:
    plan = plan_host(Lock(models=(model("vae/a.pt", GIB),)), HostFacts(disk_free_bytes=0))

    assert plan.findings[0].remedy == "make room there, or give --cache on a larger disk"
