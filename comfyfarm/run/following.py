"""Follows one run of a prompt to its end. The socket is a hint, polling is the truth."""

import logging

from comfyfarm.clock import Clock
from comfyfarm.comfy.session import Inbox, Session
from comfyfarm.comfy.wire import HistoryEntry, Phase, PromptState
from comfyfarm.errors import ServerError
from comfyfarm.ids import JobId
from comfyfarm.run.cancel import cancel_prompt
from comfyfarm.run.classify import of_history, transient
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import Outcome, Reason
from comfyfarm.run.wedge import WedgeWatch

logger = logging.getLogger(__name__)

_POLL_S = 1.0  # while the prompt runs; the socket tells sooner when it can
_SOON_S, _SOON_TRIES = 0.05, 20  # after the socket's word that it ended, which may be a lie
_HISTORY_TRIES = 20  # the entry follows `execution_success` within milliseconds, seen up to 28
_UNREACHABLE_S = 20.0  # a server that does not answer for so long has lost the attempt


class Following:
    """One run of one prompt, from its acceptance on. `follow` is called once."""

    def __init__(
        self,
        session: Session,
        inbox: Inbox,
        job_id: JobId,
        *,
        number: float,
        expected: tuple[str, ...],
        deadlines: Deadlines,
        clock: Clock,
    ) -> None:
        """`number`: the run's, as the submission was answered; negative where it is not known.

        `expected`: nodes whose output must be there at the end.
        """
        self._session, self._inbox, self._job_id = session, inbox, job_id
        self._number, self._expected = number, expected
        self._deadlines, self._clock = deadlines, clock
        self._began = self._answered = clock.monotonic()
        self._started: float | None = None
        self._roused = 0
        self._wedge = WedgeWatch(after_s=deadlines.wedged_s)

    async def follow(self) -> Executed:
        """Until this very run has ended, or may not go on.

        Raises:
            ServerError: the server has not answered for 20 s; the prompt may still run there.
        """
        soon = 0
        while True:
            hurry = self._inbox.has_ended and soon < _SOON_TRIES
            soon += hurry
            await self._inbox.wait(_SOON_S if hurry else _POLL_S)
            if hurry and soon == 1:
                entry = await self._said_to_be_done()
                if entry is not None:
                    return Executed(outcome=of_history(entry, expected=self._expected), entry=entry)
            state = await self._state()
            if state is None:
                continue
            if not state.phase.is_live:
                ended = await self._ended(state)
                if ended is not None:
                    return ended
                continue
            end = await self._end_of_patience(state)
            if end is not None:
                has_let_go = await self._let_go()
                return end.model_copy(update={"stuck": end.stuck or not has_let_go})
            await self._rouse()

    async def _said_to_be_done(self) -> HistoryEntry | None:
        """The history entry, if the socket was right: it saves asking for the state."""
        try:
            entry = await self._session.client.history(self._job_id)
        except ServerError:
            return None
        # Without a number it may be an earlier run's.
        return entry if entry is not None and entry.number == self._number else None

    async def _state(self) -> PromptState | None:
        now = self._clock.monotonic()
        try:
            state = await self._session.client.prompt_state(self._job_id)
        except ServerError:
            if now - self._answered > _UNREACHABLE_S:
                raise
            return None
        if state.phase.is_live:
            self._answered = now
        self._inbox.note(state.phase)
        if self._started is None and self._inbox.has_started:
            self._started = now
        return state

    async def _end_of_patience(self, state: PromptState) -> Executed | None:
        if self._session.condemned:
            return Executed(outcome=transient(Reason.SERVER, self._session.condemned))
        overdue = self._overdue()
        if overdue is not None:
            return Executed(outcome=transient(Reason.DEADLINE, overdue))
        wedged = await self._wedged() if state.phase is Phase.PENDING else None
        # It lets go of what only waits, and is dead all the same.
        return Executed(outcome=transient(Reason.SERVER, wedged), stuck=True) if wedged is not None else None

    def _overdue(self) -> str | None:
        now, limits = self._clock.monotonic(), self._deadlines
        if self._started is None:
            late = now - self._began > limits.queue_wait_s
            return f"queue wait: not begun after {limits.queue_wait_s:g} s" if late else None
        if now - self._started > limits.execution_s:
            return f"execution: not done after {limits.execution_s:g} s"
        if now - self._inbox.heard_at > limits.no_progress_s:
            return f"no progress for {limits.no_progress_s:g} s"
        return None

    async def _wedged(self) -> str | None:
        try:
            queue = await self._session.client.queue()
        except ServerError:
            return None
        return self._wedge.saw(
            running=queue[Phase.IN_PROGRESS], pending=queue[Phase.PENDING], now=self._clock.monotonic()
        )

    async def _rouse(self) -> None:
        """Warn of a silence, and connect anew: the prompt may be well and the socket alone be dead."""
        quiet_s = self._clock.monotonic() - self._inbox.heard_at
        if self._started is None or quiet_s < self._deadlines.quiet_s:
            self._roused = 0
        elif quiet_s >= self._deadlines.quiet_s * (self._roused + 1):
            self._roused += 1
            logger.warning("job %s: no progress for %d s", self._job_id, quiet_s)
            await self._session.reconnect()

    async def _ended(self, state: PromptState) -> Executed | None:
        """How it ended; None when the history cannot be read just now."""
        now = self._clock.monotonic()
        try:
            # Entries without a status are unknown to the jobs route, but not to the history.
            entry = await self._history(tries=1 if state.phase is Phase.UNKNOWN else _HISTORY_TRIES)
        except ServerError:
            if now - self._answered > _UNREACHABLE_S:
                raise
            return None
        if entry is None and state.phase is Phase.UNKNOWN:
            return Executed(outcome=_forgotten(self._inbox))
        if entry is None:
            return Executed(outcome=transient(Reason.SERVER, "ended, but the history does not have it"))
        return Executed(outcome=of_history(entry, expected=self._expected), entry=entry)

    async def _history(self, *, tries: int) -> HistoryEntry | None:
        for _ in range(tries):
            entry = await self._session.client.history(self._job_id)
            if entry is not None and (self._number < 0 or entry.number in {None, self._number}):
                return entry
            await self._clock.sleep(_SOON_S)
        return None

    async def _let_go(self) -> bool:
        return await cancel_prompt(
            self._session.client, self._job_id, clock=self._clock, deadline_s=self._deadlines.cancel_s
        )


def _forgotten(inbox: Inbox) -> Outcome:
    """A prompt that only waited did not crash the server, and was perhaps just taken off the queue."""
    if not inbox.has_started:
        return transient(Reason.SERVER, "the server has forgotten the prompt before it began")
    return transient(Reason.CRASH, "the server has forgotten the prompt: it was restarted")
