"""What can be broken, how often, and which ends of an attempt are then its true reason."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

SERVER = frozenset({"server"})
GONE = frozenset({"server", "crash", "crashes servers"})
LATE = frozenset({"server", "deadline"})
NONE: frozenset[str] = frozenset()


class At(StrEnum):
    """What a fault strikes."""

    PROMPT = "prompt"
    """The next prompt that a server takes: a word of the fake's script."""
    NOW = "now"
    """A server, for some seconds or at once: a word of the fake's script."""
    SERVER = "server"
    """A server's process."""
    WORKER = "worker"
    """A worker's processes."""
    FARM = "farm"
    """What all of them need."""


class Kind(BaseModel):
    """One kind of fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """As in the fake's script, for those that are its words."""
    at: At
    weight: int = 1
    """How often it is drawn, beside the others. 0: it comes by the timetable."""
    classes: frozenset[str] = NONE
    """Reason classes of which it is a true cause; none: nothing may fail of it."""
    ends: bool = False
    """It ends an execution, or makes what one has left unreachable."""
    seconds: tuple[float, float] | None = None
    """How long it lasts, from and to: the word's number, or until it is undone."""
    is_wedge: bool = False
    """Only a restart of the server helps: we come and do it, as a supervisor would."""

    @property
    def loses(self) -> bool:
        """It can take a prompt from whoever waits for it, or the other way round."""
        is_server = self.at is At.SERVER or self.is_wedge or "crash" in self.classes
        return self.ends and (is_server or self.at is At.WORKER)

    @property
    def is_at_once(self) -> bool:
        """What it does is done when it begins; the rest of its time is for what it leaves to be put right."""
        return self.is_end_of_server or (self.at is At.NOW and self.seconds is None)

    @property
    def is_end_of_server(self) -> bool:
        """A process is gone, with its queue and its history."""
        return self.at is At.SERVER and "crash" in self.classes

    @property
    def is_single(self) -> bool:
        """It can be felt by one attempt, and then no more."""
        return self.at is At.PROMPT and not self.is_wedge

    @property
    def tail_s(self) -> float:
        """For how long it can strike after the prompt that it was given to was taken, in seconds."""
        return 20.0 if self.is_wedge else 0.0


def _prompt(name: str, weight: int = 1, classes: frozenset[str] = NONE, *, ends: bool = False) -> Kind:
    return Kind(name=name, at=At.PROMPT, weight=weight, classes=classes, ends=ends)


def _now(
    name: str,
    weight: int = 1,
    classes: frozenset[str] = NONE,
    *,
    seconds: tuple[float, float] | None = (0.5, 3.0),
    ends: bool = False,
) -> Kind:
    return Kind(name=name, at=At.NOW, weight=weight, classes=classes, seconds=seconds, ends=ends)


_PROMPTS = (
    _prompt("oom", 4, frozenset({"oom"}), ends=True),
    _prompt("error", 1, frozenset({"node failed"}), ends=True),
    _prompt("invalid", 1, frozenset({"invalid workflow"})),
    _prompt("node-errors", 1, frozenset({"invalid workflow"}), ends=True),
    _prompt("hang", 2, frozenset({"deadline"}), ends=True),
    _prompt("slow:1.5", 3),
    _prompt("500", 2, SERVER),
    _prompt("503", 1, SERVER),
    _prompt("429", 1, SERVER),
    _prompt("close", 2, SERVER),
    _prompt("accept-close", 3),
    _prompt("no-answer", 2),
    _prompt("garbage", 2),
    _prompt("truncated", 2),
    _prompt("rst-body", 3),
    _prompt("other-id", 1, SERVER, ends=True),
    _prompt("drop", 2),
    _prompt("mute-sockets", 2),
    _prompt("duplicate"),
    _prompt("reorder"),
    _prompt("foreign"),
    _prompt("intermediate"),
    _prompt("forget-client"),
    _prompt("freeze-sender:2"),
    # What follows from these follows from `ENDED`.
    _prompt("exit-before", 2),
    _prompt("exit-accepted", 2),
    _prompt("exit-node", 2),
    _prompt("exit-success", 2),
    Kind(name="worker-stuck", at=At.PROMPT, classes=LATE, ends=True, is_wedge=True),
    Kind(name="worker-dead", at=At.PROMPT, classes=LATE, ends=True, is_wedge=True),
    _prompt("view-404:2"),
    _prompt("view-404", 1, SERVER, ends=True),
    _prompt("view-short:2"),
    _prompt("view-rst:2"),
    _prompt("view-long:2"),
    _prompt("name-spaces"),
    _prompt("name-unicode"),
    _prompt("name-dotdot"),
    _prompt("name-absolute"),
    _prompt("name-long"),
    _prompt("no-status"),
    _prompt("no-history", 1, GONE, ends=True),
)
_NOW = (
    _now("500", 3, SERVER),
    _now("503", 1, SERVER),
    _now("429", 1, SERVER),
    _now("close", 2, SERVER),
    _now("accept-close", 1, SERVER),
    _now("no-answer", 2, LATE),
    _now("garbage", 1, SERVER),
    _now("truncated", 1, SERVER),
    _now("rst-body", 2, SERVER),
    _now("drop", 4, seconds=None),
    _now("mute-sockets", 2),
    _now("forget-client", 1, seconds=None),
    _now("view-404", 2, SERVER, ends=True),
    _now("view-short", 1, SERVER, ends=True),
    _now("view-rst", 1, SERVER, ends=True),
    _now("view-long", 1, SERVER, ends=True),
    _now("history-500", 2, SERVER),
    _now("jobs-500", 2),
    _now("queue-500", 1, SERVER),
    _now("forget-history", 1, GONE, seconds=None, ends=True),
    _now("deaf", 1),
)
ENDED = Kind(name="ended", at=At.SERVER, weight=0, classes=GONE, ends=True)
"""A word of a script ended its process."""
KILL_SERVER = Kind(name="kill", at=At.SERVER, weight=9, classes=GONE, ends=True, seconds=(0.3, 4.0))
_SERVERS = (
    KILL_SERVER,
    Kind(name="freeze", at=At.SERVER, weight=5, classes=LATE, seconds=(0.5, 4.0)),
)
_WORKERS = (
    Kind(name="kill", at=At.WORKER, weight=9),
    Kind(name="kill the command alone", at=At.WORKER, weight=2),
    Kind(name="freeze", at=At.WORKER, weight=7, seconds=(0.5, 6.0)),
)
LONG_FREEZE = Kind(name="freeze beyond the lease", at=At.WORKER, weight=0, classes=LATE, seconds=(68.0, 80.0))
FILE_LIMIT = Kind(name="RLIMIT_FSIZE", at=At.WORKER, weight=0, ends=True, seconds=(4.0, 8.0))
FULL_DISK = Kind(name="full disk", at=At.WORKER, weight=0, ends=True, seconds=(3.0, 6.0))
LEFT_OUT = Kind(name="left out when a worker began", at=At.SERVER, weight=0, ends=True)
"""What follows when a server is away at that moment: that worker takes up nothing that is on it."""
PREFECT_DOWN = Kind(name="Prefect down", at=At.FARM, weight=0, seconds=(20.0, 20.0))
POSTGRES_RESTART = Kind(name="PostgreSQL restarted", at=At.FARM, weight=0)

DRAWN = (*_PROMPTS, *_NOW, *_SERVERS, *_WORKERS)
"""One of them every second."""
