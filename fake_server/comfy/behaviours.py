"""The words of the script language: what can go wrong, and what one prompt is given of it."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Behaviour(StrEnum):
    """One way in which the server goes wrong. `docs/rehearse.md` has the table."""

    OK = "ok"
    """As it is; sent as `now`, everything that was switched on ends."""
    # --- POST /prompt, or any request ---
    HTTP_500 = "500"
    HTTP_503 = "503"
    HTTP_429 = "429"
    CLOSE = "close"
    """The connection is closed, nothing is accepted."""
    ACCEPT_CLOSE = "accept-close"
    """The request is carried out, the connection closed before the answer."""
    NO_ANSWER = "no-answer"
    """The request is carried out and never answered."""
    GARBAGE = "garbage"
    """The request is carried out, the answer is no JSON."""
    TRUNCATED = "truncated"
    """Half of the answer, then an orderly end."""
    RST_BODY = "rst-body"
    """Half of the answer, then a reset."""
    # --- POST /prompt alone ---
    INVALID = "invalid"
    NODE_ERRORS = "node-errors"
    """Accepted with `node_errors`; of several outputs the last is left out."""
    OTHER_ID = "other-id"
    """Runs under an id of the server's own."""
    # --- the running prompt ---
    ERROR = "error"
    OOM = "oom"
    HANG = "hang"
    """Runs for ever, until it is interrupted."""
    SLOW = "slow"
    DEAF = "deaf"
    """An interrupt has no effect."""
    WORKER_STUCK = "worker-stuck"
    """This id runs for ever, silent and deaf; HTTP goes on."""
    WORKER_DEAD = "worker-dead"
    """The worker dies before the prompt starts: it stays pending, nothing runs."""
    # --- messages ---
    DROP = "drop"
    MUTE = "mute-sockets"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    FOREIGN = "foreign"
    INTERMEDIATE = "intermediate"
    FORGET_CLIENT = "forget-client"
    FREEZE_SENDER = "freeze-sender"
    # --- the process ---
    EXIT = "exit"
    EXIT_BEFORE = "exit-before"
    EXIT_ACCEPTED = "exit-accepted"
    EXIT_NODE = "exit-node"
    EXIT_SUCCESS = "exit-success"
    RESTART = "restart"
    # --- files ---
    VIEW_404 = "view-404"
    VIEW_SHORT = "view-short"
    VIEW_LONG = "view-long"
    VIEW_RST = "view-rst"
    NAME_SPACES = "name-spaces"
    NAME_UNICODE = "name-unicode"
    NAME_DOTDOT = "name-dotdot"
    NAME_ABSOLUTE = "name-absolute"
    NAME_LONG = "name-long"
    # --- history and other reading ---
    NO_STATUS = "no-status"
    NO_HISTORY = "no-history"
    FORGET_HISTORY = "forget-history"
    HISTORY_500 = "history-500"
    JOBS_500 = "jobs-500"
    QUEUE_500 = "queue-500"
    SLOW_OBJECT_INFO = "slow-object-info"


EARLY = frozenset({Behaviour.HTTP_500, Behaviour.HTTP_503, Behaviour.HTTP_429, Behaviour.CLOSE})
"""Answers in place of the request's work."""
LATE = frozenset(
    {
        Behaviour.ACCEPT_CLOSE,
        Behaviour.NO_ANSWER,
        Behaviour.GARBAGE,
        Behaviour.TRUNCATED,
        Behaviour.RST_BODY,
    }
)
"""The work is done, the answer goes wrong."""
VIEW = frozenset({Behaviour.VIEW_404, Behaviour.VIEW_SHORT, Behaviour.VIEW_LONG, Behaviour.VIEW_RST})
ROUTES_500 = {
    Behaviour.HISTORY_500: "/history",
    Behaviour.JOBS_500: "/jobs",
    Behaviour.QUEUE_500: "/queue",
}
SWITCHED = frozenset({Behaviour.FREEZE_SENDER, Behaviour.SLOW_OBJECT_INFO, *ROUTES_500})
"""They are about the whole server: in a script, they begin when the prompt is accepted."""
LASTING = EARLY | LATE | VIEW | SWITCHED | {Behaviour.MUTE, Behaviour.DEAF}
"""What can be switched on at any time, for seconds or until `ok`."""
AT_ONCE = frozenset(
    {
        Behaviour.DROP,
        Behaviour.FORGET_CLIENT,
        Behaviour.FORGET_HISTORY,
        Behaviour.WORKER_DEAD,
        Behaviour.EXIT,
        Behaviour.RESTART,
    }
)
"""What can be done at any time, once."""
UNCACHED = frozenset(
    {
        Behaviour.ERROR,
        Behaviour.OOM,
        Behaviour.HANG,
        Behaviour.SLOW,
        Behaviour.DEAF,
        Behaviour.WORKER_STUCK,
        Behaviour.DROP,
        Behaviour.MUTE,
        Behaviour.INTERMEDIATE,
        Behaviour.FORGET_CLIENT,
        Behaviour.EXIT_NODE,
        Behaviour.RESTART,
    }
)
"""What needs a node to run: the cache is dropped first."""
NOW_ONLY = frozenset({Behaviour.EXIT, Behaviour.FORGET_HISTORY})
"""What says nothing about a single prompt."""


class Acts(BaseModel):
    """The behaviours that one prompt is given together, each with its number where it has one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[tuple[Behaviour, float | None], ...] = ()

    def __contains__(self, behaviour: Behaviour) -> bool:
        return any(word is behaviour for word, _ in self.words)

    def __str__(self) -> str:
        return "+".join(word if number is None else f"{word}:{number:g}" for word, number in self.words)

    def number(self, behaviour: Behaviour, default: float) -> float:
        """The number after the colon: `slow:5`."""
        found = next((number for word, number in self.words if word is behaviour), None)
        return default if found is None else found

    def any_of(self, behaviours: frozenset[Behaviour]) -> Behaviour | None:
        """The first of its words that is among these."""
        return next((word for word, _ in self.words if word in behaviours), None)
