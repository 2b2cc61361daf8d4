"""Recorded traffic of ComfyUI 0.27, sent to the fake: the same answers and the same messages.

Compared are status, content type, body and each socket's messages in order. Ids and file names may differ,
but must stand for the same thing throughout; times, tracebacks and printed tensors are left out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_server.comfy import FakeComfy
from fake_server.comfy.cache import CachePolicy
from fake_server.comfy.media import png

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
Play = Callable[..., Any]
Scenarios = Callable[[str], dict[str, Any]]

# How many prompts remained when a status was sent is a race of the recorded client against the server
# wherever a second prompt was posted while a quick one ran.
_NO_STATUS = {"drop": {"status"}}
# The fake stops at the interrupt; the recorded node went on to its next step.
_NO_STEPS = {"drop": {"progress", "progress_state"}}

_RED, _GREEN = "d3" * 32, "47" * 32


def _pictures(fake: FakeComfy) -> None:
    for name, digest in {"red.png": _RED, "green_alpha.png": _GREEN, "inplace.png": _RED}.items():
        (fake.input_dir / name).write_bytes(png(digest, 8, 8))
    (fake.input_dir / "notanimage.png").write_bytes(b"no picture")


def _view_files(fake: FakeComfy) -> None:
    _pictures(fake)
    for name, text in {
        "v.html": "<p>",
        "v.svg": "<svg/>",
        "v.json": '{"a": 1}',
        "v.mp4": "",
        "v.bin": "",
    }.items():
        (fake.output_dir / name).write_text(text)
    (fake.output_dir / "v.txt").write_text("text")
    (fake.output_dir / "link.png").symlink_to(fake.input_dir / "red.png")


def _models(fake: FakeComfy) -> None:
    names = ("bogus", "empty", "garbage", "sub/nested", "truncated")
    others = ("upscale_models/bogus_upscale", "vae/bogus_vae")
    for path in [*(f"checkpoints/{name}" for name in names), *others]:
        file = fake.models_dir / f"{path}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def _other_picture(fake: FakeComfy) -> None:
    (fake.input_dir / "inplace.png").write_bytes(png(_GREEN, 8, 8))


def _remove_outputs(fake: FakeComfy) -> None:
    for file in fake.output_dir.glob("*.png"):
        file.unlink()


def _noise(fake: FakeComfy) -> None:
    (fake.input_dir / "noise.png").write_bytes(png(_RED, 8, 8))


_BOGUS = {"raises": ["CheckpointLoaderSimple", "UpscaleModelLoader", "VAELoader"], "prepare": _models}

OPTIONS: dict[str, dict[str, Any]] = {
    "bogus_checkpoint_bogus": _BOGUS,
    "bogus_checkpoint_empty": _BOGUS,
    "bogus_checkpoint_garbage": _BOGUS,
    "bogus_checkpoint_nested": _BOGUS,
    "bogus_checkpoint_truncated": _BOGUS,
    "bogus_upscale_model": _BOGUS,
    "bogus_vae": _BOGUS,
    "disk_full": {"raises": ["SaveImage"], "prepare": _noise},
    # The recorder cut the two million characters.
    "error_huge_message": {"skip": {1}, "drop": {"execution_error"}},
    "oom_cpu_emptyimage": {"raises": ["EmptyImage"]},
    # The real server keeps its output nodes in a set, whose order the recording tells.
    "execution_blocker": {"order": ["1", "2", "4", "3"]},
    "async_nodes": {"order": ["1", "2", "4", "3"]},
    "png_prompt_is_changed": {"prepare": _pictures},
    "interrupt_async_node": {"slow": ["RecAsync"], "until_interrupted": ["1"]},
    "interrupt_uninterruptible_node": {"slow": ["RecHard"], "until_interrupted": ["1"]},
    "interrupt_core_nodes_chain": {"slow": ["ImageBlur"], "until_interrupted": ["11"]},
    "interrupt_in_last_node": {"slow": ["SaveAnimatedWEBP"], "until_interrupted": ["2"]},
    # The fake prints no tensors.
    "output_preview_any_image": {"drop": {"executed"}, "skip": {1, 2}},
    # They name the recorded server's folders.
    "output_save_prefix_absolute": {"drop": {"execution_error"}, "skip": {1, 2}},
    "output_save_prefix_traversal": {"drop": {"execution_error"}, "skip": {1, 2}},
    "cache_classic": {"before": {3: _remove_outputs}},
    "cache_none": {"before": {3: _remove_outputs}, "cache": CachePolicy.NONE},
    "cache_none_same_twice": {"cache": CachePolicy.NONE, "idle_before": {5}},
    "cache_lru_wrong_file": {"before": {3: _remove_outputs}, "cache": CachePolicy.KEEP},
    "cache_ram_big_host_wrong_file": {"before": {3: _remove_outputs}, "cache": CachePolicy.KEEP},
    "crash_unconnected_inputs_null": {"skip": {4}},
    "crash_unhashable_input_value": {"skip": {9}},
    "crash_node_baseexception": {"skip": {4}},
    "crash_node_keyboardinterrupt": {"skip": {4}},
    # What an aborted process had still to send is lost.
    "crash_node_abort": {"drop": {"executing", "progress_state"}},
    "crash_node_systemexit": {"skip": {4}},
    "crash_node_unprintable": {"skip": {4}},
    "ordinary_prompt_after_error": _NO_STATUS,
    "prompt_id_forms": _NO_STATUS,
    "bad_bodies": {"first_number": 67},
    "same_prompt_id_twice_queued": _NO_STATUS,
    "same_prompt_id_delete_pending": _NO_STATUS,
    "same_workflow_twice": {"before": {4: _remove_outputs}},
    "cached_output_wrong_file": {"before": {3: _remove_outputs}},
    "load_image_changed_in_place": {"prepare": _pictures, "before": {4: _other_picture}},
    # The real server keeps its output nodes in a set: their order is not the same twice.
    "partial_execution": {"drop": {"progress_state", "executing", "executed"}},
    "validation_several_errors_two_outputs": {"skip": {0}},
    "validation_checkpoint_not_in_list": {"prepare": _models},
    "validation_v3_combo_not_in_list": {"prepare": _models},
    "history_access": _NO_STATUS,
    "api_jobs": _NO_STATUS | {"skip": {21}},  # 21 sorts by durations of a few milliseconds
    "api_jobs_cancel": _NO_STATUS | {"unnoticed": {8}},
    "api_jobs_bad_workflow_meta": {"skip": {7}},  # lists older jobs of the recorded server
    "queue_idle_busy": _NO_STATUS | {"skip": {6}},  # likewise
    "queue_clear": _NO_STATUS | {"skip": {8}},  # likewise
    "queue_delete_pending": _NO_STATUS,
    "queue_delete_running": _NO_STATUS,
    "queue_order_front_number": _NO_STATUS,
    "queue_same_number_tie": _NO_STATUS,
    "status_queue_remaining": _NO_STATUS,
    "interrupt_with_prompt_id": _NO_STEPS,
    "interrupt_prompt_without_client": _NO_STEPS | {"primed": ["1"]},
    "interrupt_then_next_prompt": _NO_STATUS,
    "interrupt_other_id": _NO_STATUS | {"skip": {6}},
    "view": _NO_STATUS | {"prepare": _view_files, "skip": {36}},  # 36 names the recorded file's ETag
    # 27 shows the whole schema of a class, of which the fake has less.
    "upload_image": _NO_STATUS | {"prepare": _pictures, "skip": {27}},
    "upload_image_raw_names": {"unsent": {17}},  # a cut body: aiohttp leaves its own temporary file open
    "output_load_image_not_an_image": {"prepare": _pictures, "drop": {"execution_error"}, "skip": {1, 2}},
    "output_load_image_save": {"prepare": _pictures},
    "ws_feature_flags": _NO_STATUS,
    "ws_late_connect_same_client": {"primed": ["1"]},
    "ws_two_clients": _NO_STATUS,
    "ws_progress_text": {"drop": {"executed"}},  # the stand-in hands on no text
    "crash_unconnected_node_without_inputs": {"skip": {4}},  # /system_stats: this machine's memory
    "crash_duplicate_number_and_id": _NO_STATUS | {"skip": {6, 7, 10}},  # moments between two prompts
}

TOPICS: dict[str, tuple[str, ...]] = {
    "errors": (
        "error_CustomError",
        "error_MemoryError",
        "error_RuntimeError",
        "error_RuntimeError_oom_text",
        "error_ValueError",
        "error_torch_AcceleratorError",
        "error_torch_OutOfMemoryError",
        "ordinary_prompt_after_error",
        "oom_cpu_emptyimage",
        "bogus_checkpoint_bogus",
        "bogus_checkpoint_empty",
        "bogus_checkpoint_garbage",
        "bogus_checkpoint_nested",
        "bogus_checkpoint_truncated",
        "bogus_upscale_model",
        "bogus_vae",
        "disk_full",
        "error_huge_message",
    ),
    "files": (
        "view",
        "upload_image",
        "upload_image_raw_names",
        "upload_mask",
    ),
    "history": ("history_access",),
    "dynamic": (
        "subgraph_expansion",
        "execution_blocker",
        "async_nodes",
        "dynamic_cycle",
        "is_changed",
        "png_prompt_is_changed",
    ),
    "http": (
        "origin_checks",
        "methods",
    ),
    "interrupt": (
        "interrupt_with_prompt_id",
        "interrupt_without_body",
        "interrupt_other_id",
        "interrupt_when_idle",
        "interrupt_prompt_without_client",
        "interrupt_then_next_prompt",
        "interrupt_async_node",
        "interrupt_in_last_node",
        "interrupt_uninterruptible_node",
        "interrupt_core_nodes_chain",
    ),
    "jobs": (
        "api_jobs",
        "api_jobs_cancel",
        "api_jobs_bad_workflow_meta",
    ),
    "outputs": (
        "output_custom_ui_dict_list",
        "output_custom_ui_gifs",
        "output_custom_ui_mixed",
        "output_custom_ui_nan",
        "output_custom_ui_non_list",
        "output_custom_ui_scalar_in_list",
        "output_custom_ui_text_list",
        "output_image_compare",
        "output_image_scale",
        "output_load_image_not_an_image",
        "output_load_image_save",
        "output_mask_preview",
        "output_preview_any_int",
        "output_preview_any_string",
        "output_preview_audio",
        "output_preview_image_batch",
        "output_save_animated_png",
        "output_save_animated_webp",
        "output_save_audio_flac",
        "output_save_audio_mp3",
        "output_save_audio_opus",
        "output_save_image_batch",
        "output_save_latent",
        "output_save_prefix_unicode",
        "output_save_text",
        "output_save_video",
        "output_save_webm",
        "output_preview_any_image",
        "output_save_prefix_absolute",
        "output_save_prefix_traversal",
    ),
    "prompt": (
        "prompt_id_forms",
        "bad_bodies",
        "workflow_format_submitted",
        "same_prompt_id_twice_queued",
        "same_prompt_id_after_done",
        "same_prompt_id_delete_pending",
    ),
    "queue": (
        "queue_idle_busy",
        "queue_clear",
        "queue_delete_pending",
        "queue_delete_running",
        "queue_order_front_number",
        "queue_same_number_tie",
        "status_queue_remaining",
    ),
    "run": (
        "success_basic",
        "same_workflow_twice",
        "same_workflow_cached_without_client",
        "success_without_client_id",
        "partially_valid_prompt",
        "accepted_oddities",
        "partial_execution",
        "node_raises",
        "node_raises_after_output",
        "node_raises_without_client",
        "free_memory",
        "load_image_changed_in_place",
        "client_id_types",
        "extra_data",
        "cached_output_wrong_file",
        "cache_classic",
        "cache_none",
        "cache_none_same_twice",
        "cache_lru_wrong_file",
        "cache_ram_big_host_wrong_file",
    ),
    "sockets": (
        "ws_client_id_odd",
        "ws_feature_flags",
        "ws_feature_flags_garbage_first",
        "ws_late_connect_same_client",
        "ws_progress_text",
        "ws_reconnect_after_done",
        "ws_reconnect_mid_run",
        "ws_same_client_id_old_closes",
        "ws_same_client_id_replaced",
        "ws_two_clients",
        "ws_unknown_submit_client",
        "ws_without_client_id",
    ),
    "validation": (
        "validation_bad_link_length_1",
        "validation_bad_link_length_3",
        "validation_checkpoint_not_in_list",
        "validation_custom_validation_false",
        "validation_custom_validation_message",
        "validation_custom_validation_raises",
        "validation_cycle_self",
        "validation_cycle_two_nodes",
        "validation_empty_body_object",
        "validation_link_to_missing_node",
        "validation_link_to_missing_slot",
        "validation_loadimage_missing_file",
        "validation_missing_class_type",
        "validation_missing_prompt_key",
        "validation_missing_required_input",
        "validation_missing_required_link_input",
        "validation_node_without_inputs_key",
        "validation_prompt_empty_object",
        "validation_prompt_no_outputs",
        "validation_several_errors_two_outputs",
        "validation_type_mismatch",
        "validation_unknown_class_type",
        "validation_unknown_class_type_in_unused_node",
        "validation_unknown_class_type_with_title",
        "validation_v3_combo_not_in_list",
        "validation_value_bigger_than_max",
        "validation_value_not_convertible",
        "validation_value_null",
        "validation_value_smaller_than_min",
    ),
    "wedges": (
        "crash_unconnected_node_without_inputs",
        "crash_duplicate_number_and_id",
        "crash_unconnected_inputs_null",
        "crash_unhashable_input_value",
        "crash_node_baseexception",
        "crash_node_keyboardinterrupt",
        "crash_node_systemexit",
        "crash_node_unprintable",
        "crash_node_abort",
        "crash_client_id_unhashable",
        "crash_ui_not_json",
    ),
}
CASES = [(topic, name) for topic, names in TOPICS.items() for name in names]


@pytest.mark.parametrize(("topic", "name"), CASES, ids=[name for _, name in CASES])
async def test_the_fake_answers_as_recorded(
    topic: str, name: str, replay: Play, scenarios: Scenarios
) -> None:
    await replay(scenarios(topic)[name], **OPTIONS.get(name, {}))


NOT_REPLAYED: dict[str, tuple[str, ...]] = {
    "how the real program starts and stops, and flags that the fake has not": (
        "cors_origin",
        "cors_star",
        "database_lock_second",
        "disable_api_nodes",
        "enable_assets",
        "enable_manager",
        "enable_manager_not_installed",
        "extra_model_paths_bad",
        "extra_model_paths_missing",
        "listen_0000",
        "listen_all",
        "listen_two",
        "misc_flags",
        "port_in_use",
        "start_cpu_with_cuda_device",
        "start_empty_base",
        "start_no_custom_nodes",
        "start_only_custom_nodes",
        "start_unknown_flag",
        "start_without_cpu_flag_no_gpu",
        "stderr_pipe_closed",
        "stop_sighup_idle",
        "stop_sigint_idle",
        "stop_sigint_running",
        "stop_sigint_running_hard",
        "stop_sigterm_idle",
        "stop_sigterm_running",
        "tls",
    ),
    "custom node packs, logs and pages of the real program": (
        "custom_nodes_exposure",
        "listings",
        "logs_subscribe",
        "openapi_vs_live",
        "validation_node_whose_INPUT_TYPES_raises",
    ),
    "measures time, or this machine": (
        "long_chain_cost",
        "object_info_full",
        "system_stats",
    ),
    "the recording is of chance, or lacks what was sent": (
        "concurrency_50",
        "deep_json",
        "huge_body",
        "progress_state_growth",
        "three_prompts_queue_polled",
        "ws_compression",
        "ws_ping_and_binary_from_client",
    ),
    "done to the process or its folders from outside; test_fake_command and faults/ have the like": (
        "extra_model_paths",
        "kill_mid_run",
        "kill_partial_files",
        "models_refresh",
        "output_dir_removed",
        "post_then_disconnect",
        "shared_base_directory",
        "sigstop_post_times_out_but_runs",
        "stderr_pipe_not_read",
        "ws_stalled_reader",
    ),
}


def test_every_recorded_scenario_is_replayed_or_named(scenarios: Scenarios) -> None:
    everything = json.loads((RECORDINGS / "names.json").read_text())
    replayed = [name for _, name in CASES]
    left_out = [name for names in NOT_REPLAYED.values() for name in names]

    assert sorted(replayed + left_out) == everything


def test_every_kept_scenario_is_replayed(scenarios: Scenarios) -> None:
    topics = [path.name.removesuffix(".json.gz") for path in RECORDINGS.glob("*.json.gz")]

    assert {topic: set(scenarios(topic)) for topic in topics} == {
        topic: set(names) for topic, names in TOPICS.items()
    }
