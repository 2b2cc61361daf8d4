"""One attempt of a job on one server: catch up, connect, submit, follow, classify."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from comfyfarm.clock import Clock
from comfyfarm.comfy.session import Inbox, Session
from comfyfarm.comfy.wire import HistoryEntry, Phase, PromptState
from comfyfarm.errors import ServerError, ServerUnreachable
from comfyfarm.ids import JobId
from comfyfarm.run.cancel import cancel_prompt
from comfyfarm.run.classify import of_history, of_submission, transient
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.outcome import Outcome, Reason

logger = logging.getLogger(__name__)

_POLL_S = 1.0  # while the prompt runs; the socket tells sooner when it can
_HISTORY_TRIES = 20  # the entry follows `execution_success` within milliseconds, seen up to 28
_UNREACHABLE_S = 20.0  # a server that does not answer for so long has lost the attempt


class Journal(Protocol):
    """Where an attempt writes down what must survive us (the ledger)."""

    async def submitting(self) -> None:
        """Commit server, boot identity and client id, before the POST."""
        ...

    async def submitted(self, number: float) -> None:
        """Commit the number of this run."""
        ...


class Task(BaseModel):
    """What is to be rendered, and what an earlier attempt on this server left."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: JobId
    graph: Mapping[str, Any]
    """API graph as it is sent: overrides, prefix and uploaded inputs in place."""
    expected: tuple[str, ...]
    """Nodes whose output must be there at the end."""
    may_be_there: bool = False
    """An earlier process may have submitted it here: look before sending."""
    number: float | None = None
    """The number of that run, when its answer was seen."""


class Executed(BaseModel):
    """How the execution ended, and the history entry to collect outputs from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    entry: HistoryEntry | None = None
    stuck: bool = False
    """The server will not let go of the prompt: only a restart helps."""


class Attempt:
    """Runs one task on one session. Errors of the server become outcomes; nothing else is caught."""

    def __init__(
        self, session: Session, task: Task, journal: Journal, *, deadlines: Deadlines, clock: Clock
    ) -> None:
        self._session, self._task, self._journal = session, task, journal
        self._deadlines, self._clock = deadlines, clock

    async def execute(self) -> Executed:
        """From catching up to a classified end; the outputs stay on the server."""
        with self._session.follow(self._task.job_id) as inbox:
            try:
                number = await self._caught_up()
                if number is None:
                    submitted = await self._submit()
                    if isinstance(submitted, Outcome):
                        return Executed(outcome=submitted)
                    number = submitted
                return await self._follow(inbox, number)
            except ServerError as exc:
                return Executed(outcome=transient(Reason.SERVER, str(exc), evidence=_heard(inbox)))

    async def _caught_up(self) -> float | None:
        """The number of a run of this job that the server still knows, or None."""
        return await self._look() if self._task.may_be_there else None

    async def _look(self) -> float | None:
        """The number of a run that is alive or done here; -1 where the server does not say it.

        A POST whose sender was killed may arrive after us, hence the second look.
        """
        for pause_s in (0.5, 0.0):
            state = await self._session.client.prompt_state(self._task.job_id)
            if state.phase.is_live or self._is_ours(state):
                logger.info("job %s is known to %s: %s", self._task.job_id, self._session.url, state.phase)
                return state.number if state.number is not None else -1.0
            if self._task.number is not None:
                return None
            await self._clock.sleep(pause_s)
        return None

    def _is_ours(self, state: PromptState) -> bool:
        """Whether an ended run is the one that was left: an older failure must be tried again."""
        known = self._task.number
        return state.phase is Phase.COMPLETED or (
            state.phase.is_over and known is not None and state.number == known
        )

    async def _submit(self) -> float | Outcome:
        # Socket first: a prompt of a few milliseconds is over before a later one is open.
        await self._session.listening(timeout_s=10.0)
        await self._journal.submitting()
        try:
            answer = await self._session.client.submit(
                self._task.graph,
                prompt_id=self._task.job_id,
                client_id=self._session.client_id,
                timeout_s=self._deadlines.submit_s,
            )
        except ServerUnreachable as lost:
            return await self._found_after_all(lost)
        outcome = of_submission(answer)
        if answer.number is not None and outcome is not None:
            await self._let_go()  # accepted in part: what was accepted must not run
        if outcome is None and answer.prompt_id != self._task.job_id:
            return transient(Reason.SERVER, f"the server ran it under another id, {answer.prompt_id}")
        if outcome is not None:
            return outcome
        number = float(answer.number or 0)
        await self._journal.submitted(number)
        return number

    async def _found_after_all(self, lost: ServerUnreachable) -> float:
        """A POST without an answer may still run: look before anybody sends it again."""
        number = await self._look()
        if number is None:
            raise lost
        if number >= 0:
            await self._journal.submitted(number)
        return number

    async def _follow(self, inbox: Inbox, number: float) -> Executed:
        """Until this very run has ended, by the socket's hint and by polling."""
        begun, answered = self._clock.monotonic(), self._clock.monotonic()
        started: float | None = None
        warned = False
        while True:
            await inbox.wait(0.05 if inbox.has_ended else _POLL_S)
            now = self._clock.monotonic()
            started = now if started is None and inbox.has_started else started
            try:
                state = await self._session.client.prompt_state(self._task.job_id)
                answered = now
            except ServerError:
                if now - answered > _UNREACHABLE_S:
                    raise
                continue
            inbox.note(state.phase)
            if not state.phase.is_live:
                return await self._ended(inbox, state, number)
            overdue = self._overdue(now, begun, started, inbox)
            if overdue is not None:
                stuck = not await self._let_go()
                return Executed(
                    outcome=transient(Reason.DEADLINE, overdue, evidence=_heard(inbox)), stuck=stuck
                )
            if started is not None and now - inbox.heard_at > self._deadlines.quiet_s and not warned:
                warned = True
                logger.warning("job %s: no progress for %d s", self._task.job_id, self._deadlines.quiet_s)

    def _overdue(self, now: float, begun: float, started: float | None, inbox: Inbox) -> str | None:
        limits = self._deadlines
        if started is None:
            late = now - begun > limits.queue_wait_s
            return f"queue wait: not begun after {limits.queue_wait_s:g} s" if late else None
        if now - started > limits.execution_s:
            return f"execution: not done after {limits.execution_s:g} s"
        if now - inbox.heard_at > limits.no_progress_s:
            return f"no progress for {limits.no_progress_s:g} s"
        return None

    async def _ended(self, inbox: Inbox, state: PromptState, number: float) -> Executed:
        if state.phase is Phase.UNKNOWN:
            return Executed(outcome=_forgotten(inbox))
        entry = await self._history(number)
        if entry is None:
            return Executed(outcome=transient(Reason.SERVER, "ended, but the history does not have it"))
        return Executed(outcome=of_history(entry, expected=self._task.expected), entry=entry)

    async def _history(self, number: float) -> HistoryEntry | None:
        for _ in range(_HISTORY_TRIES):
            entry = await self._session.client.history(self._task.job_id)
            if entry is not None and (number < 0 or entry.number is None or entry.number == number):
                return entry
            await self._clock.sleep(0.05)
        return None

    async def _let_go(self) -> bool:
        return await cancel_prompt(
            self._session.client, self._task.job_id, clock=self._clock, deadline_s=self._deadlines.cancel_s
        )


def _forgotten(inbox: Inbox) -> Outcome:
    """A prompt that only waited did not crash the server, and was perhaps just taken off the queue."""
    if not inbox.has_started:
        return transient(Reason.SERVER, "the server has forgotten the prompt before it began")
    return transient(
        Reason.CRASH, "the server has forgotten the prompt: it was restarted", evidence=_heard(inbox)
    )


def _heard(inbox: Inbox) -> str:
    return "last messages:\n" + "\n".join(inbox.latest) if inbox.latest else ""
