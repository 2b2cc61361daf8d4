"""What an observation means for the job: one row for each line of the table, then what was recorded."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.comfy.wire import HistoryEntry, SubmitAnswer, read_history
from comfyfarm.run.classify import is_out_of_memory, of_history, of_node_error, of_submission, transient
from comfyfarm.run.outcome import SUCCEEDED, Outcome, Reason, Verdict

DATA = Path(__file__).parents[2] / "data"
P, T = Verdict.PERMANENT, Verdict.TRANSIENT


def recorded(topic: str, scenario: str) -> list[dict[str, Any]]:
    """The recorded requests and answers of a scenario."""
    found = json.loads(gzip.decompress((DATA / "recordings" / f"{topic}.json.gz").read_bytes()))
    http: list[dict[str, Any]] = next(one["http"] for one in found if one["scenario"] == scenario)
    return http


def recorded_histories(topic: str, scenario: str) -> list[HistoryEntry]:
    bodies = [
        each["body"]["json"]
        for each in recorded(topic, scenario)
        if each["path"].startswith("/history/") and each["body"].get("json")
    ]
    return [read_history(entry) for body in bodies for entry in body.values()]


def recorded_answers(topic: str, scenario: str) -> list[SubmitAnswer]:
    return [
        answer(each["status"], each["body"].get("json") or {}, text=each["body"].get("text", ""))
        for each in recorded(topic, scenario)
        if each["method"] == "POST" and each["path"] == "/prompt"
    ]


def answer(status: int, body: dict[str, Any] | None = None, **more: Any) -> SubmitAnswer:
    found = body or {}
    fields = {name: found[name] for name in ("prompt_id", "number", "error", "node_errors") if name in found}
    return SubmitAnswer(status=status, **fields, **more)


def history(*messages: tuple[str, dict[str, Any]], outputs: dict[str, Any] | None = None) -> HistoryEntry:
    return HistoryEntry(number=1, outputs=outputs or {}, status_str="success", messages=messages)


ERROR = {"type": "prompt_no_outputs", "message": "Prompt has no outputs", "details": "", "extra_info": {}}
NODE_ERRORS = {
    "5": {"errors": [{"message": "Value too small", "details": "width"}], "class_type": "EmptyImage"}
}


@pytest.mark.parametrize(
    ("seen", "verdict", "reason"),
    [
        (answer(400, {"error": ERROR}), P, Reason.INVALID_WORKFLOW),
        (answer(400, {"error": ERROR, "node_errors": NODE_ERRORS}), P, Reason.INVALID_WORKFLOW),
        (answer(200, {"number": 3, "node_errors": NODE_ERRORS}), P, Reason.INVALID_WORKFLOW),
        (answer(413, text="too large"), P, Reason.INVALID_WORKFLOW),
        (answer(403), P, Reason.INVALID_WORKFLOW),
        (answer(400, text="<html>a proxy</html>"), P, Reason.INVALID_WORKFLOW),
        (answer(500, text="500 Internal Server Error"), T, Reason.SERVER),
        (answer(502, text="<html>a proxy</html>"), T, Reason.SERVER),
        (answer(503, retry_after_s=7.0), T, Reason.SERVER),
        (answer(429, retry_after_s=7.0), T, Reason.SERVER),
        (answer(408), T, Reason.SERVER),
        (answer(200, text="not JSON"), T, Reason.SERVER),
        (answer(302), T, Reason.SERVER),
    ],
)
def test_what_a_refused_submission_means(seen: SubmitAnswer, verdict: Verdict, reason: Reason) -> None:
    outcome = of_submission(seen)

    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.retry_after_s == (seen.retry_after_s if verdict is T else None)
    assert outcome.message


def test_an_accepted_submission_is_no_outcome_yet() -> None:
    assert of_submission(answer(200, {"prompt_id": "x", "number": 0, "node_errors": {}})) is None


def node_error(kind: str, text: str) -> dict[str, Any]:
    return {"node_id": "7", "node_type": "KSampler", "exception_type": kind, "exception_message": text}


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (node_error("torch.OutOfMemoryError", "CUDA out of memory."), T, Reason.OOM),
        (node_error("torch.cuda.OutOfMemoryError", ""), T, Reason.OOM),
        (node_error("MemoryError", ""), T, Reason.OOM),
        (node_error("RuntimeError", "Allocation on device 0 would exceed"), T, Reason.OOM),
        (node_error("RuntimeError", "[enforce fail] can't allocate memory: you tried"), T, Reason.OOM),
        (node_error("ValueError", "size mismatch"), P, Reason.NODE_FAILED),
        (node_error("OSError", "[Errno 28] No space left on device"), P, Reason.NODE_FAILED),
        (node_error("", ""), P, Reason.NODE_FAILED),
    ],
)
def test_what_a_failed_node_means(error: dict[str, Any], verdict: Verdict, reason: Reason) -> None:
    outcome = of_history(history(("execution_start", {}), ("execution_error", error)), expected=())

    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.message.startswith("node 7 KSampler: ")
    assert "KSampler" in outcome.evidence


@pytest.mark.parametrize(
    ("entry", "reason", "said"),
    [
        (history(("execution_interrupted", {"node_id": "7"})), Reason.INTERRUPTED, "not by us"),
        (history(("execution_start", {})), Reason.SERVER, "status 'success'"),
        (HistoryEntry(), Reason.SERVER, "no status at all"),
        (history(("execution_success", {})), Reason.SERVER, "without an output of node 9"),
        (history(("execution_success", {}), outputs={"9": {}}), Reason.SERVER, "without an output of node 9"),
    ],
)
def test_what_passes_is_tried_again(entry: HistoryEntry, reason: Reason, said: str) -> None:
    outcome = of_history(entry, expected=["9"])

    assert (outcome.verdict, outcome.reason) == (T, reason)
    assert said in outcome.message


def test_success_needs_its_message_and_every_output() -> None:
    done = history(("execution_success", {}), outputs={"9": {"images": []}})

    assert of_history(done, expected=["9"]) == SUCCEEDED
    assert of_history(done, expected=[]) == SUCCEEDED
    assert of_history(done, expected=["9", "10"]).verdict is T


# --- recorded of ComfyUI 0.27 -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "verdict", "reason"),
    [
        ("error_torch_OutOfMemoryError", T, Reason.OOM),
        ("error_torch_AcceleratorError", T, Reason.OOM),
        ("error_RuntimeError_oom_text", T, Reason.OOM),
        ("error_MemoryError", T, Reason.OOM),
        ("error_RuntimeError", P, Reason.NODE_FAILED),
        ("error_ValueError", P, Reason.NODE_FAILED),
        ("error_CustomError", P, Reason.NODE_FAILED),
    ],
)
def test_recorded_errors(scenario: str, verdict: Verdict, reason: Reason) -> None:
    outcomes = [of_history(entry, expected=()) for entry in recorded_histories("errors", scenario)]

    assert {(one.verdict, one.reason) for one in outcomes} == {(verdict, reason)}
    assert all("\n" not in one.message for one in outcomes)


@pytest.mark.parametrize("scenario", ["node_raises", "node_raises_after_output"])
def test_a_node_that_raised_is_permanent_though_others_had_outputs(scenario: str) -> None:
    for entry in recorded_histories("run", scenario):
        assert of_history(entry, expected=()).reason is Reason.NODE_FAILED


def test_a_recorded_interrupt_is_transient() -> None:
    found = [
        of_history(one, expected=()) for one in recorded_histories("interrupt", "interrupt_with_prompt_id")
    ]

    assert Reason.INTERRUPTED in {one.reason for one in found}
    assert P not in {one.verdict for one in found}


def test_a_recorded_success_is_one() -> None:
    for entry in recorded_histories("run", "success_basic"):
        assert of_history(entry, expected=list(entry.outputs)) == SUCCEEDED


def test_accepted_in_part_names_the_node_that_would_be_left_out() -> None:
    (first, *_) = recorded_answers("run", "partially_valid_prompt")
    outcome = of_submission(first)

    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (P, Reason.INVALID_WORKFLOW)
    assert outcome.message == (
        "accepted only in part: node 5 EmptyImage: Value 0 smaller than min of 1: width"
    )


def test_several_refused_nodes_are_counted() -> None:
    (first, *_) = recorded_answers("validation", "validation_several_errors_two_outputs")
    outcome = of_submission(first)

    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (P, Reason.INVALID_WORKFLOW)
    assert outcome.message.startswith("node ")
    assert f"(and {len(first.node_errors) - 1} more nodes)" in outcome.message


def test_every_recorded_refusal_is_permanent_and_says_why() -> None:
    found = json.loads(gzip.decompress((DATA / "recordings" / "validation.json.gz").read_bytes()))
    refused = [one for each in found for one in recorded_answers("validation", each["scenario"])]
    outcomes = [of_submission(one) for one in refused if one.status == 400]

    assert len(outcomes) > 15
    assert {one.verdict for one in outcomes if one is not None} == {P}
    assert not [one for one in outcomes if one is None or "None" in one.message.split()]


def test_garbage_that_the_server_chokes_on_is_the_servers_500() -> None:
    answers = [one for one in recorded_answers("prompt", "bad_bodies") if one.status == 500]
    outcomes = [of_submission(one) for one in answers]

    assert {one.reason for one in outcomes if one is not None} == {Reason.SERVER}


def kept_histories() -> dict[str, HistoryEntry]:
    raw = json.loads((DATA / "outcomes" / "histories.json").read_text())
    return {name: read_history(entry) for name, entry in raw.items()}


@pytest.mark.parametrize(
    ("scenario", "verdict", "reason"),
    [
        # `status_str` says success, but nothing ran: the messages tell.
        ("dynamic_cycle", P, Reason.NODE_FAILED),
        ("oom_cpu_emptyimage", T, Reason.OOM),
        ("execution_blocker", T, Reason.SERVER),
    ],
)
def test_recorded_ends_that_mislead(scenario: str, verdict: Verdict, reason: Reason) -> None:
    entry = kept_histories()[scenario]
    wanted = ["3", "4"] if scenario == "execution_blocker" else ["2"]
    outcome = of_history(entry, expected=wanted)

    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def test_a_blocked_branch_that_nobody_expects_is_a_success() -> None:
    assert of_history(kept_histories()["execution_blocker"], expected=["4"]) == SUCCEEDED


# --- what is stored -----------------------------------------------------------------------------


def all_texts(outcome: Outcome) -> str:
    return outcome.message + outcome.evidence


@given(st.text(), st.text())
def test_any_text_can_be_stored(kind: str, text: str) -> None:
    outcomes = [of_node_error(node_error(kind, text)), transient(Reason.SERVER, kind, evidence=text)]
    refused = of_submission(answer(400, {"error": {"type": kind, "message": text}}, text=text))
    assert refused is not None

    for outcome in [*outcomes, refused]:
        all_texts(outcome).encode("utf-8")
        assert "\0" not in all_texts(outcome)
        assert "\n" not in outcome.message
        assert len(outcome.message) <= 500


def test_half_a_surrogate_pair_and_a_nul_can_be_stored() -> None:
    outcome = transient(Reason.SERVER, "a\ud83db\0c", evidence="a\ud83db\0c")

    all_texts(outcome).encode("utf-8")
    assert "\0" not in all_texts(outcome)


def test_an_error_of_two_megabytes_is_cut() -> None:
    outcome = of_node_error(node_error("RuntimeError", "word " * 400_000))

    assert len(outcome.evidence) < 70_000
    assert outcome.evidence.endswith("[cut]")
    assert len(outcome.message) <= 500


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.none() | st.integers()))
def test_an_odd_error_is_still_classified(error: dict[str, Any]) -> None:
    assert of_node_error(error).reason in {Reason.NODE_FAILED, Reason.OOM}


def test_a_word_about_memory_is_not_enough() -> None:
    assert not is_out_of_memory("KeyError", "memory_efficient_attention")
    assert is_out_of_memory("RuntimeError", "CUDA error: OUT OF MEMORY")
