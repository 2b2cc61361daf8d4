"""One server at work: what an outcome says of the server, and when its lane ends."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.supervision import Unsupervised
from comfyfarm.farm.lane import Errand, Lane
from comfyfarm.ids import JobId
from comfyfarm.pool.handout import Handout
from comfyfarm.run.classify import transient
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import SUCCEEDED, Reason
from infra.comfy_servers import fake_comfy

Serving = Callable[..., Any]


class HastyClock(SystemClock):
    """Its pauses are twenty times as short."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 20)


def lane(session: Session, handout: Handout[Errand], *, clock: Clock | None = None) -> Lane:
    return Lane(session, handout, clock=clock or SystemClock(), supervisor=Unsupervised())


def errand(executed: Executed | Exception, name: str = "job") -> Errand:
    async def attempt(_session: Session) -> Executed:
        if isinstance(executed, Exception):
            raise executed
        return executed

    return Errand(job_id=JobId(name), attempt=attempt)


async def result(one: Errand) -> Executed:
    session, executed = await asyncio.wait_for(one.result, 10)
    assert session.url.startswith("http://127.0.0.1:")
    return executed


async def test_results_come_back_and_the_lane_ends_with_the_hand_out(serving: Serving) -> None:
    handout: Handout[Errand] = Handout()
    async with Session(serving().url) as session:
        working = asyncio.create_task(lane(session, handout).work())
        jobs = [errand(Executed(outcome=SUCCEEDED), str(n)) for n in range(5)]
        for job in jobs:
            handout.put(job)
        assert [(await result(job)).outcome for job in jobs] == [SUCCEEDED] * 5
        handout.close()
        await asyncio.wait_for(working, 5)


async def test_what_an_attempt_raises_goes_to_whoever_waits_and_the_lane_goes_on(serving: Serving) -> None:
    handout: Handout[Errand] = Handout()
    async with Session(serving().url) as session:
        working = asyncio.create_task(lane(session, handout).work())
        broken, good = errand(KeyError("odd")), errand(Executed(outcome=SUCCEEDED))
        handout.put(broken)
        handout.put(good)
        with pytest.raises(KeyError, match="odd"):
            await result(broken)
        assert (await result(good)).outcome == SUCCEEDED
        handout.close()
        await working


async def test_memory_is_freed_after_it_ran_out(serving: Serving, until: Any) -> None:
    served = serving()
    handout: Handout[Errand] = Handout()
    async with Session(served.url) as session:
        working = asyncio.create_task(lane(session, handout).work())
        handout.put(errand(Executed(outcome=transient(Reason.OOM, "full"))))
        await until(lambda: served.asked("POST /free") == 1)
        handout.close()
        await working


async def test_a_server_that_will_not_let_go_gets_nothing_more(serving: Serving) -> None:
    handout: Handout[Errand] = Handout()
    async with Session(serving().url) as session:
        working = asyncio.create_task(lane(session, handout).work())
        stuck = errand(Executed(outcome=transient(Reason.DEADLINE, "hangs"), stuck=True))
        handout.put(stuck)
        await asyncio.wait_for(working, 10)

        assert (await result(stuck)).stuck
        assert handout.lanes == ()


class Restarter:
    """A supervisor that says that it did it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def restart(self, url: str, why: str) -> bool:
        self.asked.append((url, why))
        return True


async def test_a_server_that_was_restarted_for_it_goes_on(serving: Serving) -> None:
    handout: Handout[Errand] = Handout()
    supervisor = Restarter()
    async with Session(serving().url) as session:
        one = Lane(session, handout, clock=SystemClock(), supervisor=supervisor)
        working = asyncio.create_task(one.work())
        handout.put(errand(Executed(outcome=transient(Reason.DEADLINE, "hangs"), stuck=True)))
        after = errand(Executed(outcome=SUCCEEDED))
        handout.put(after)

        assert (await result(after)).outcome == SUCCEEDED
        assert supervisor.asked == [(session.url, "hangs")]
        assert session.condemned == ""
        handout.close()
        await working


async def test_a_lane_waits_for_its_server_to_come_back(tmp_path: Path, until: Any) -> None:
    handout: Handout[Errand] = Handout()
    lost = Executed(outcome=transient(Reason.SERVER, "reset"))
    with fake_comfy(log=tmp_path / "log") as server:
        session = Session(server.url)
        await session.__aenter__()
        working = asyncio.create_task(lane(session, handout, clock=HastyClock()).work())
        await until(lambda: handout.lanes == (server.url,))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(10)
        handout.put(errand(lost))
        await until(lambda: handout.lanes == ())
    with fake_comfy(log=tmp_path / "log", port=int(server.url.rpartition(":")[2])):
        await until(lambda: handout.lanes == (server.url,))
        after = errand(Executed(outcome=SUCCEEDED))
        handout.put(after)
        assert (await result(after)).outcome == SUCCEEDED
        handout.close()
        await working
        await session.__aexit__(None, None, None)


async def test_a_lane_ends_when_its_server_stays_away(until: Any) -> None:
    class Impatient(HastyClock):
        def monotonic(self) -> float:
            return super().monotonic() * 400

    handout: Handout[Errand] = Handout()
    async with Session("http://127.0.0.1:1") as session:
        working = asyncio.create_task(lane(session, handout, clock=Impatient()).work())
        handout.put(errand(Executed(outcome=transient(Reason.SERVER, "refused"))))
        await asyncio.wait_for(working, 20)

    assert handout.lanes == ()
