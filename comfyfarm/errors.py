"""Every error that a caller of comfyfarm must act upon.

FarmError
├── InputError              the workflow or its data is at fault        exit 1
│   ├── WorkflowError           not a graph that ComfyUI could run
│   ├── OverrideError           an override names what the graph has not
│   ├── CatalogueError          a catalogue or lock file that cannot be read
│   ├── NamesMissing            models without a pin or a source, all of them named
│   │   └── AssetsMissing           input files that are nowhere, all of them named
│   └── ForeignFile             a file that is not ours lies where ours should go
├── UsageError              usage or set-up, before anything starts     exit 2
│   ├── JobConflict             a known job id with other content, or in another batch
│   ├── NoRoom                  the models do not fit on this host
│   └── ControlUnavailable      the control server cannot run here
└── TryLater                may succeed later, as it is                 exit 3
    ├── ServerError             a ComfyUI server is at fault
    │   ├── ServerUnreachable       refused, reset, or silent past the deadline
    │   └── ProtocolError           an answer that is not ComfyUI's
    ├── TransferError           no source gave the bytes
    │   └── CorruptBytes            a source gave other bytes than the pin says
    ├── StoreError              an object store or folder did not take or give a file
    │   └── SpoiledFile             the file to be stored is no longer as it was recorded
    ├── SpoolError              this host cannot keep files: its disk is full, or not to be written
    ├── LedgerError             the ledger did not answer
    ├── StaleClaim              the claim is lost: throw the result away and stop
    ├── NoLane                  no server of the shard is left to run a job
    └── AttemptFailed           one attempt failed, another will follow (at Prefect's edge)

A failed render is no error: it is an `Outcome` (comfyfarm.run.outcome).
"""

from collections.abc import Sequence
from typing import ClassVar


class FarmError(Exception):
    """Base of the errors above. `exit_code` is what the command ends with."""

    exit_code: ClassVar[int] = 1


class InputError(FarmError):
    """The workflow or its data is at fault; running it again changes nothing."""


class WorkflowError(InputError):
    """Not a graph that ComfyUI could run. The message names file, node, field and remedy."""


class OverrideError(InputError):
    """An override names a node or input that the graph has not."""


class CatalogueError(InputError):
    """A catalogue, lock or job file that cannot be read."""


class NamesMissing(InputError):
    """Models that nothing pins or offers, all of them at once."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        # args equal __init__'s own, so that the error survives pickling.
        super().__init__(message, tuple(names))
        self.message = message
        self.names = tuple(names)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {name}" for name in self.names)])


class AssetsMissing(NamesMissing):
    """Input files (images, masks, audio, video) that are nowhere to be found, all at once."""


class ForeignFile(InputError):
    """A file that is not ours lies where a model should be linked. It is never overwritten."""


class UsageError(FarmError):
    """Wrong usage or set-up, noticed before anything starts."""

    exit_code = 2


class JobConflict(UsageError):
    """A known job id with other content, or in another batch."""


class NoRoom(UsageError):
    """The models do not fit on this host. Nothing has been fetched."""


class ControlUnavailable(UsageError):
    """The embedded control server cannot run here. The message says what to set instead."""


class TryLater(FarmError):
    """Nothing is wrong with the request; the same call may succeed later."""

    exit_code = 3


class ServerError(TryLater):
    """A ComfyUI server is at fault. The same job may succeed on another."""


class ServerUnreachable(ServerError):
    """The server did not answer: refused, reset, or silent past the deadline."""

    def __init__(self, url: str, reason: str, is_refused: bool = False) -> None:
        super().__init__(url, reason, is_refused)
        self.url = url
        self.reason = reason
        self.is_refused = is_refused
        """No connection could be made: nothing was sent."""

    def __str__(self) -> str:
        return f"{self.url} did not answer: {self.reason}"


class ProtocolError(ServerError):
    """An answer that is not ComfyUI's: a wrong status, garbage, a truncated body."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(url, reason, status)
        self.url = url
        self.reason = reason
        self.status = status
        """Of the HTTP answer, where that was what was wrong."""

    def __str__(self) -> str:
        return f"{self.url} answered what ComfyUI would not: {self.reason}"


class TransferError(TryLater):
    """No source gave the bytes; the message lists each source and its failure."""


class CorruptBytes(TransferError):
    """A source gave other bytes than the pin says. They were dropped."""


class StoreError(TryLater):
    """An object store or folder did not take or give a file."""


class SpoiledFile(StoreError):
    """A file that is to be stored is no longer as it was recorded."""


class SpoolError(TryLater):
    """This host cannot keep rendered files: its disk is full, or not to be written. No job is at fault."""


class LedgerError(TryLater):
    """The ledger did not answer."""


class StaleClaim(TryLater):
    """The claim is lost to another owner: throw the result away and stop."""


class NoLane(TryLater):
    """No server of the shard is left to run a job; it is given back."""


class AttemptFailed(TryLater):
    """One attempt failed and another will follow. Raised at Prefect's edge only, which shows the wait."""

    def __init__(self, reason: str, least_s: float) -> None:
        super().__init__(reason, least_s)
        self.reason = reason
        self.least_s = least_s
        """Never try again sooner than this: the server asked for it."""

    def __str__(self) -> str:
        return self.reason
