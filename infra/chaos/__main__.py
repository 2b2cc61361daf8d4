"""The command: `python -m infra.chaos [--jobs 500] [--servers 4] [--workers 3] [--seed N] [--short]`."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from infra.chaos.run import Options, run


def main(arguments: list[str] | None = None) -> int:
    """Run it; 0 when all figures hold."""
    options = _options(arguments)
    print(f"seed {options.seed}, everything is in {options.folder}", file=sys.stderr, flush=True)
    figures = asyncio.run(run(options))
    for figure in figures:
        print(figure.model_dump_json(), flush=True)
    holds = all(figure.ok for figure in figures)
    if holds and not options.keep:
        shutil.rmtree(options.folder, ignore_errors=True)
    elif not holds:
        print(f"it does not hold; seed {options.seed}, logs in {options.folder}", file=sys.stderr)
    return 0 if holds else 1


def _options(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m infra.chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="under a minute: no Prefect, no long freeze")
    parser.add_argument("--jobs", type=int, help="default: 500; short: 50")
    parser.add_argument("--servers", type=int, help="default: 4; short: 3")
    parser.add_argument("--workers", type=int, help="default: 3, one of them under Prefect; short: 2")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--limit-s", type=float, help="gives up then; default: 1500 s; short: 240 s")
    parser.add_argument("--keep", action="store_true", help="keep logs, journals and outputs in any case")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="comfyfarm-chaos-"))
    folder.chmod(0o711)  # PostgreSQL's own user passes through it
    jobs, servers, workers, limit_s = (50, 3, 2, 240.0) if given.short else (500, 4, 3, 1500.0)
    return Options(
        folder=folder,
        is_short=given.short,
        jobs=given.jobs or jobs,
        servers=given.servers or servers,
        workers=given.workers or workers,
        seed=secrets.randbelow(1_000_000) if given.seed is None else given.seed,
        limit_s=given.limit_s or limit_s,
        keep=given.keep,
    )


if __name__ == "__main__":
    sys.exit(main())
