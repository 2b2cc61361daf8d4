"""Make the room that an admission asks for, with the cache locked."""

from collections.abc import Callable, Mapping
from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.admission import Admission, CacheState, Refusal, admit, missing_of
from comfyfarm.cache.keeper.evict import drop_partial, evict_blobs
from comfyfarm.cache.keeper.index import Index
from comfyfarm.cache.keeper.known import Known
from comfyfarm.errors import NoRoom


def make_room(
    wanted: Mapping[str, int],
    look: Callable[[], tuple[CacheState, Known]],
    blobs: BlobStore,
    *,
    index: Index,
    disk: Disk,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let leave what has to; returns which of the wanted files are missing, and which blobs left.

    Raises:
        NoRoom: they do not fit, whatever may leave.
        OSError: the disk cannot be written.
    """
    gone: list[str] = []
    while True:
        state, known = look()
        plan = admitted(admit(wanted, state), blobs.root)
        for name in plan.drop_quarantined:
            disk.unlink(blobs.root / "quarantine" / name)
        dropped = [drop_partial(blobs.root / ".partial" / sha, disk=disk) for sha in plan.drop_partial]
        went = evict_blobs(plan.evict, blobs, known, index=index, disk=disk)
        gone.extend(went)
        # Somebody may just have taken one: then others have to leave.
        if all(dropped) and len(went) == len(plan.evict):
            return tuple(missing_of(wanted, state)), tuple(gone)


def admitted(answer: Admission | Refusal, root: Path) -> Admission:
    """The admission to the cache at `root`.

    Raises:
        NoRoom: it is a refusal.
    """
    if isinstance(answer, Refusal):
        raise NoRoom(f"{root}: {answer.reason}")
    return answer
