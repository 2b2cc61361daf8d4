"""The routes around prompts: submit, queue, history, interrupt, free, jobs.

Source: facts of ComfyUI 0.27, sections 2, 3 and 7; [rec: prompt_id_forms, bad_bodies, queue_*, api_jobs*].
"""

import time
import uuid
from typing import Any

from aiohttp import web

from fake_server.comfy.answers import json_answer
from fake_server.comfy.behaviours import EARLY, Acts, Behaviour
from fake_server.comfy.jobs import BadQuery, all_jobs, is_canonical, one_job, page
from fake_server.comfy.journal import Journal
from fake_server.comfy.problems import Problem, problem, scripted_refusal
from fake_server.comfy.prompts import Entry, Prompts
from fake_server.comfy.script import Script
from fake_server.comfy.spoiling import ACTS, refuse
from fake_server.comfy.stage import Stage
from fake_server.comfy.validate import Rejected, Validator
from fake_server.comfy.worker import Order, Worker

_SECRETS = ("auth_token_comfy_org", "api_key_comfy_org")


class PromptRoutes:
    """Handlers that need the queue, the worker and the validator."""

    def __init__(
        self, *, prompts: Prompts, worker: Worker, stage: Stage, validator: Validator, journal: Journal
    ) -> None:
        self.script = Script()
        self._prompts = prompts
        self._worker = worker
        self._stage = stage
        self._validator = validator
        self._journal = journal

    def routes(self) -> list[web.RouteDef]:
        """The routes that exist bare and under /api."""
        return [
            web.get("/prompt", self.get_prompt),
            web.post("/prompt", self.post_prompt),
            web.get("/queue", self.get_queue),
            web.post("/queue", self.post_queue),
            web.get("/history", self.get_history),
            web.get("/history/{prompt_id}", self.get_history_entry),
            web.post("/history", self.post_history),
            web.post("/interrupt", self.post_interrupt),
            web.post("/free", self.post_free),
            web.get("/api/jobs", self.get_jobs),
            web.get("/api/jobs/{job_id}", self.get_job),
            web.post("/api/jobs/cancel", self.cancel_jobs),
            web.post("/api/jobs/{job_id}/cancel", self.cancel_job),
        ]

    async def get_prompt(self, _request: web.Request) -> web.Response:
        """How many prompts remain."""
        return json_answer({"exec_info": {"queue_remaining": self._prompts.remaining()}})

    async def post_prompt(self, request: web.Request) -> web.Response:
        """Validate and queue a prompt."""
        self._stage.log.say("INFO", "got prompt")
        body = await request.json()
        number = self._number(body)
        if "prompt" not in body:
            return _refusal(problem("no_prompt", "No prompt provided", "No prompt provided"))
        prompt_id = body.get("prompt_id")
        if prompt_id is None:
            prompt_id = str(uuid.uuid4())
        elif not is_canonical(prompt_id):
            return _refusal(_bad_id())
        graph = body["prompt"]
        _refuse_odd_shapes(graph)
        try:
            outputs, node_errors = self._validator.check(graph, body.get("partial_execution_targets"))
        except Rejected as exc:
            self._stage.log.refused(exc.error, exc.node_errors)
            return _refusal(exc.error, exc.node_errors)
        self._stage.log.faults(node_errors)
        extra = _extra_data(body, request.headers.get("Comfy-Usage-Source"))
        acts = self.script.take(prompt_id)
        if (word := acts.any_of(EARLY)) is not None:
            return refuse(request, word, retry_after_s=acts.number(word, 1.0))
        if Behaviour.INVALID in acts:
            return _refusal(*scripted_refusal(graph, outputs[0]))
        if Behaviour.EXIT_BEFORE in acts:
            await self._stage.exit()
            return web.Response()
        return await self._accept(request, acts, (number, prompt_id, graph, extra, outputs), node_errors)

    async def _accept(
        self, request: web.Request, acts: Acts, entry: Entry, node_errors: dict[str, Any]
    ) -> web.Response:
        number, prompt_id, graph, extra, outputs = entry
        if Behaviour.OTHER_ID in acts:
            prompt_id = str(uuid.uuid4())
        if Behaviour.NODE_ERRORS in acts:
            node_errors = scripted_refusal(graph, outputs[-1])[1]
            outputs = outputs[:-1] or outputs
        request[ACTS] = acts
        self._stage.conditions.begin_with(acts)
        key = self._journal.received(prompt_id, extra.get("client_id"))
        self._worker.expect(number, prompt_id, Order(acts=acts, journal_key=key))
        await self._prompts.put((number, prompt_id, graph, extra, outputs))
        if Behaviour.EXIT_ACCEPTED in acts:
            await self._stage.exit()
        return json_answer({"prompt_id": prompt_id, "number": number, "node_errors": node_errors})

    async def get_queue(self, _request: web.Request) -> web.Response:
        """What runs, and what waits, in the order of the heap."""
        running = list(self._prompts.running.values())
        return json_answer({"queue_running": running, "queue_pending": self._prompts.pending})

    async def post_queue(self, request: web.Request) -> web.Response:
        """Clear the pending prompts, or delete some of them."""
        body = await request.json()
        if "clear" in body and body["clear"]:  # noqa: RUF019 - a list is no fault there
            self._prompts.clear_pending()
        if "delete" in body:
            for prompt_id in body["delete"]:
                self._prompts.delete_pending(prompt_id)
        return web.Response()

    async def get_history(self, request: web.Request) -> web.Response:
        """The history, or a part of it."""
        query = request.rel_url.query
        max_items = int(query["max_items"]) if "max_items" in query else None
        offset = int(query["offset"]) if "offset" in query else -1
        return json_answer(self._prompts.history_page(max_items, offset))

    async def get_history_entry(self, request: web.Request) -> web.Response:
        """One prompt's entry; empty for an unknown id."""
        prompt_id = request.match_info["prompt_id"]
        known = self._prompts.history.get(prompt_id)
        return json_answer({} if known is None else {prompt_id: known})

    async def post_history(self, request: web.Request) -> web.Response:
        """Clear the history, or delete entries."""
        body = await request.json()
        if "clear" in body and body["clear"]:  # noqa: RUF019 - a list is no fault there
            self._prompts.history.clear()
        if "delete" in body:
            self._prompts.forget(body["delete"])
        return web.Response()

    async def post_interrupt(self, request: web.Request) -> web.Response:
        """Stop what runs: any prompt, or the named one if it is the one that runs."""
        try:
            body = await request.json()
        except ValueError:
            body = {}
        prompt_id = body.get("prompt_id")
        if not prompt_id or self._prompts.is_running(prompt_id):
            self._stage.interrupt = True
        return web.Response()

    async def post_free(self, request: web.Request) -> web.Response:
        """Ask the worker to drop its models or its node results."""
        body = await request.json()
        unload, free = body.get("unload_models", False), body.get("free_memory", False)
        if free:
            self._worker.free_memory = True
        if unload or free:
            await self._prompts.wake()
        return web.Response()

    async def get_jobs(self, request: web.Request) -> web.Response:
        """All jobs, filtered and paged."""
        try:
            return json_answer(page(all_jobs(self._prompts), request.rel_url.query))
        except BadQuery as exc:
            return json_answer({"error": str(exc)}, status=400)

    async def get_job(self, request: web.Request) -> web.Response:
        """One job in full."""
        job = one_job(self._prompts, request.match_info["job_id"])
        return json_answer({"error": "Job not found"}, status=404) if job is None else json_answer(job)

    async def cancel_job(self, request: web.Request) -> web.Response:
        """Cancel one job, and say whether there was anything to cancel."""
        return json_answer({"cancelled": self._cancel([request.match_info["job_id"]])})

    async def cancel_jobs(self, request: web.Request) -> web.Response:
        """Cancel several jobs."""
        try:
            body = await request.json()
        except ValueError:
            return json_answer({"error": "Request body must be valid JSON"}, status=400)
        job_ids = body.get("job_ids", [])
        if not isinstance(job_ids, list):
            return json_answer({"error": "job_ids must be a list"}, status=400)
        bad = [str(job_id) for job_id in job_ids if not is_canonical(job_id)]
        if bad:
            answer = {"error": "job_ids contains invalid id(s)", "invalid_ids": bad}
            return json_answer(answer, status=400)
        return json_answer({"cancelled": self._cancel(job_ids)})

    def _cancel(self, job_ids: list[str]) -> bool:
        cancelled = deleted = False
        for job_id in job_ids:
            if self._prompts.is_running(job_id):
                self._stage.interrupt = cancelled = True
            elif self._prompts.delete_pending(job_id):
                cancelled = deleted = True
        if deleted:
            self._stage.sockets.send_status()
        return cancelled

    def _number(self, body: Any) -> float:
        if "number" in body:
            return float(body["number"])
        number = self._prompts.number
        if isinstance(body, dict) and body.get("front"):
            number = -number
        # Refused prompts use up numbers too.
        self._prompts.number += 1
        return number


def _refusal(error: Problem, node_errors: dict[str, Any] | None = None) -> web.Response:
    return json_answer({"error": error, "node_errors": node_errors or {}}, status=400)


def _bad_id() -> Problem:
    details = (
        "prompt_id must be a UUID string in canonical lowercase hyphenated form; "
        "omit it to let the server generate one"
    )
    return problem("invalid_prompt_id", "prompt_id must be a valid UUID", details)


def _refuse_odd_shapes(graph: Any) -> None:
    if any(not isinstance(node.get("inputs", {}), dict) for node in graph.values()):
        raise TypeError("inputs is no object")


def _extra_data(body: dict[str, Any], usage_source: str | None) -> dict[str, Any]:
    extra = body.get("extra_data", {})
    if not isinstance(extra, dict):
        raise TypeError("extra_data is no object")
    if "client_id" in body:
        extra["client_id"] = body["client_id"]
    if usage_source is not None:
        extra["comfy_usage_source"] = usage_source
    for secret in _SECRETS:
        extra.pop(secret, None)
    extra["create_time"] = int(time.time() * 1000)
    return extra
