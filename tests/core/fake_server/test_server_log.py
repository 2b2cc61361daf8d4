"""The fake's own log, as `GET /internal/logs` gives it. What it holds is compared in tests/contracts."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fake_server.comfy import FakeComfy
from fake_server.comfy.server_log import ServerLog
from fake_server.serve import serve


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    fake = FakeComfy()
    with serve(fake.app) as url, httpx.Client(base_url=url, trust_env=False, timeout=10) as client:
        yield client
    fake.clean_up()


def log_of(http: httpx.Client) -> str:
    text: Any = http.get("/internal/logs").json()
    assert isinstance(text, str)
    return text


def test_a_restart_forgets_the_log(http: httpx.Client) -> None:
    http.post("/prompt", json={})
    before = log_of(http)
    http.post("/fake/restart")

    assert "[INFO]\x1b[0m got prompt\n" in before
    assert log_of(http) == ""


def test_what_is_wrong_with_a_prompt_is_logged_by_node(http: httpx.Client) -> None:
    graph = {"1": {"class_type": "PreviewImage", "inputs": {}}}
    http.post("/prompt", json={"prompt": graph})
    log = log_of(http)

    assert "* PreviewImage 1:\n" in log
    assert "  - Required input is missing: images\n" in log
    assert "invalid prompt: {'type': 'prompt_outputs_failed_validation'" in log


async def test_only_the_last_300_entries_are_kept() -> None:
    log = ServerLog()
    for number in range(301):
        log.say("INFO", f"entry {number};")
    text = (await log.show(None)).text or ""  # type: ignore[arg-type]

    assert "entry 0;" not in text
    assert "entry 1;" in text
    assert "entry 300;" in text
