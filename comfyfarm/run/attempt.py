"""One attempt of a job on one server: catch up, connect, submit, follow, classify."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from comfyfarm.clock import Clock
from comfyfarm.comfy.session import Inbox, Session
from comfyfarm.comfy.wire import Phase, PromptState, SubmitAnswer
from comfyfarm.errors import ServerError, ServerUnreachable
from comfyfarm.ids import JobId
from comfyfarm.run.cancel import cancel_prompt
from comfyfarm.run.classify import of_submission, refused, transient, with_evidence
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.executed import Executed
from comfyfarm.run.following import Following
from comfyfarm.run.forwardable import why_not
from comfyfarm.run.outcome import Reason, Verdict

logger = logging.getLogger(__name__)

_TROUBLED_S = 20.0  # as long as one that follows a prompt bears it
_AGAIN_S = 0.5


class Journal(Protocol):
    """Where an attempt writes down what must survive us (the ledger)."""

    async def submitting(self) -> None:
        """Commit server, boot identity and client id, before the POST."""
        ...

    async def submitted(self, number: float) -> None:
        """Commit the number of this run, negative when the server does not say it."""
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
    """It may have been submitted here before: look before sending."""
    may_be_sent: bool = True
    """Else only what is there already is followed."""
    number: float | None = None
    """The number of that run, when its answer was seen."""


class Attempt:
    """Runs one task on one session. Errors of the server become outcomes; nothing else is caught."""

    def __init__(
        self, session: Session, task: Task, journal: Journal, *, deadlines: Deadlines, clock: Clock
    ) -> None:
        self._session, self._task, self._journal = session, task, journal
        self._deadlines, self._clock = deadlines, clock
        self._may_run = False

    async def execute(self) -> Executed:
        """From catching up to a classified end; the outputs stay on the server."""
        fault = why_not(self._task.graph)
        if fault is not None:
            return Executed(outcome=refused(fault))
        with self._session.follow(self._task.job_id) as inbox:
            try:
                executed = await self._execute(inbox)
            except ServerError as exc:
                executed = Executed(outcome=transient(Reason.SERVER, str(exc)), may_run=self._may_run)
            if executed.outcome.verdict is Verdict.SUCCEEDED:
                return executed
            evidence = await self._evidence(inbox)
        return executed.model_copy(update={"outcome": with_evidence(executed.outcome, evidence)})

    async def _execute(self, inbox: Inbox) -> Executed:
        self._may_run = self._task.may_be_there
        number = await self._look() if self._task.may_be_there else None
        if number is not None and number != self._task.number:
            await self._journal.submitted(number)
        elif number is None and not self._task.may_be_sent:
            return Executed(outcome=transient(Reason.GIVEN_BACK, "the server has not got it"))
        elif number is None:
            self._may_run = False
            submitted = await self._submit()
            if isinstance(submitted, Executed):
                return submitted
            number = submitted
        self._may_run = True
        return await Following(
            self._session,
            inbox,
            self._task.job_id,
            number=number,
            expected=self._task.expected,
            deadlines=self._deadlines,
            clock=self._clock,
        ).follow()

    async def _look(self) -> float | None:
        """The number of a run that is alive or done here; -1 where the server does not say it.

        A POST whose sender was killed may arrive after us, hence the second look.
        """
        for pause_s in (0.5, 0.0):
            state = await self._state()
            if state.phase.is_live or self._is_ours(state):
                logger.info(
                    "job %s is known to %s: %s",
                    self._task.job_id,
                    self._session.client.shown_url,
                    state.phase,
                )
                return state.number if state.number is not None else -1.0
            if self._task.number is not None:
                return None
            await self._clock.sleep(pause_s)
        return None

    async def _state(self) -> PromptState:
        """Where the prompt is. A server that is troubled for a moment has not lost it: it is asked again.

        One at which nothing listens has.
        """
        end = self._clock.monotonic() + _TROUBLED_S
        while True:
            try:
                return await self._session.client.prompt_state(self._task.job_id)
            except ServerError as exc:
                is_gone = isinstance(exc, ServerUnreachable) and exc.is_refused
                if is_gone or self._session.condemned or self._clock.monotonic() > end:
                    raise
            await self._clock.sleep(_AGAIN_S)

    def _is_ours(self, state: PromptState) -> bool:
        """Whether an ended run is the one that was left: an older failure must be tried again."""
        known = self._task.number
        return state.phase is Phase.COMPLETED or (
            state.phase.is_over and known is not None and state.number == known
        )

    async def _submit(self) -> float | Executed:
        # Socket first: a prompt of a few milliseconds is over before a later one is open.
        await self._session.listening(timeout_s=10.0)
        await self._journal.submitting()
        self._may_run = True
        try:
            answer = await self._session.client.submit(
                self._task.graph,
                prompt_id=self._task.job_id,
                client_id=self._session.client_id,
                timeout_s=self._deadlines.submit_s,
            )
        except ServerUnreachable as lost:
            number = await self._after_all()
            if number is None:
                raise lost
            return number
        return await self._answered(answer)

    async def _answered(self, answer: SubmitAnswer) -> float | Executed:
        outcome = of_submission(answer)
        if answer.number is not None and outcome is not None:
            # Accepted in part: what was accepted must not run.
            return Executed(outcome=outcome, stuck=not await self._cancel(self._task.job_id))
        if outcome is None and answer.prompt_id != self._task.job_id:
            return await self._under_another_id(answer)
        if outcome is not None and outcome.verdict is Verdict.TRANSIENT:
            number = await self._after_all()  # whatever that answer meant, it may have been queued
            return Executed(outcome=outcome) if number is None else number
        if outcome is not None:
            return Executed(outcome=outcome)
        number = float(answer.number or 0)
        await self._journal.submitted(number)
        return number

    async def _under_another_id(self, answer: SubmitAnswer) -> Executed:
        other = answer.prompt_id
        stuck = other is not None and not await self._cancel(JobId(other))
        why = f"the server gave the prompt an id of its own, {other}: this ComfyUI is too old"
        return Executed(outcome=transient(Reason.SERVER, why), stuck=stuck)

    async def _after_all(self) -> float | None:
        """A POST without a good answer may still run: look before anybody sends it again."""
        number = await self._look()
        if number is not None:
            await self._journal.submitted(number)
        self._may_run = number is not None
        return number

    async def _cancel(self, prompt_id: JobId) -> bool:
        return await cancel_prompt(
            self._session.client, prompt_id, clock=self._clock, deadline_s=self._deadlines.cancel_s
        )

    async def _evidence(self, inbox: Inbox) -> str:
        """What else a person needs to understand a failure."""
        parts = ["last messages:\n" + "\n".join(inbox.latest)] if inbox.latest else []
        try:
            log = await self._session.client.log_tail()
        except ServerError as exc:
            log = f"not to be had: {exc}"
        return "\n\n".join([*parts, f"log of the server:\n{log}"] if log else parts)
