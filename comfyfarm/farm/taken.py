"""A job that this process has claimed."""

from comfyfarm.farm.lane import Errand
from comfyfarm.farm.recorder import Recorder
from comfyfarm.ids import JobId
from comfyfarm.ledger.records import AttemptRecord, Claim, JobRecord
from comfyfarm.run.retry import Retry


class TakenJob:
    """Ours as long as its claim holds."""

    def __init__(self, record: JobRecord, claim: Claim, *, sure_until: float) -> None:
        self.record, self.claim = record, claim
        self.sure_until = sure_until
        """Nobody else can have it before that, in monotonic seconds: our process may have been frozen."""
        self.errand: Errand | None = None
        self.recorder: Recorder | None = None
        self.retry: Retry | None = None
        """What the last attempt in this process ended in: where the next one should go."""
        self.made_by: AttemptRecord | None = None
        """The attempt of this process that made its files."""
        self.has_outcome = False
        """Whether the attempt has one, which an interrupt must not write over."""
        self.is_under_way = False
        """A server has its prompt, or its outputs are on their way: worth a grace time."""
        self.is_parked = False
        """To be given back when the shard ends: at once, it would be taken again at once."""

    @property
    def id(self) -> JobId:
        """The job's id."""
        return self.record.id

    def attempt_ended(self, *, may_run: bool) -> None:
        """Its outcome is written down. Only a prompt that may still run is there to be ended."""
        self.has_outcome = True
        if not may_run:
            self.recorder = None

    @property
    def attempt(self) -> AttemptRecord | None:
        """The attempt as far as it is written down."""
        return self.recorder.attempt if self.recorder is not None else None
