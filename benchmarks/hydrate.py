"""Group `hydrate`: model files at the speed of the link, beside aria2c and s5cmd, and uploads beside s5cmd.

All on this machine: nginx, a far line of our own making and SeaweedFS, each started and ended here. Takes
about a quarter of an hour and up to 20 GiB below `TMPDIR` or `/var/tmp`; nothing else should run meanwhile.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import hydrate_link, hydrate_uploads, hydrate_wan
from benchmarks.figure import Figure
from benchmarks.hydrate_files import working_folder
from benchmarks.hydrate_run import RunFailed
from benchmarks.hydrate_server import INSTALL, nginx_program
from comfyfarm.cache.hash_speed import hashes_fast


def figures() -> Iterator[Figure]:
    """All figures of the group.

    Raises:
        ExceptionGroup: parts that broke off, after all the others.
    """
    yield _sha_ni()
    failures = []
    with working_folder() as folder:
        for part in _parts(folder):
            try:
                yield from part
            except RunFailed as exc:
                failures.append(exc)
    if failures:
        raise ExceptionGroup("parts of the group broke off", failures)


def _parts(folder: Path) -> Iterator[Iterator[Figure]]:
    program = nginx_program()
    for module in (hydrate_link, hydrate_wan):
        yield module.without_server(INSTALL) if program is None else module.figures(program, folder)
    yield hydrate_uploads.figures(folder)


def _sha_ni() -> Figure:
    """SHA-256 in one core's hardware is three to four times as fast."""
    processor = Path("/proc/cpuinfo")
    text = processor.read_text() if processor.exists() else ""
    return Figure(
        "SHA-256 in hardware",
        float(bool(hashes_fast(text))),
        "1 is yes",
        "none",
        ok=True,
        against="/proc/cpuinfo",
    )
