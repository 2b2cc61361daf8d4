"""`python -m comfyfarm.control run|start|status|stop --dir DIR [--no-prefect] [--until-unused]`."""

import argparse
import logging
import sys
from pathlib import Path

from comfyfarm.control.server import control_status, run_control, start_control, stop_control
from comfyfarm.errors import FarmError


def main() -> int:
    """Run the command line; the exit code of the error, or 0. `status`: 1 when none runs."""
    options = _options()
    try:
        return _run(options)
    except FarmError as exc:
        sys.stderr.write(f"comfyfarm control: {exc}\n")
        return exc.exit_code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="comfyfarm.control", description=__doc__)
    parser.add_argument("action", choices=["run", "start", "status", "stop"])
    parser.add_argument("--dir", type=Path, required=True, help="the state directory")
    parser.add_argument("--no-prefect", action="store_true", help="PostgreSQL alone")
    parser.add_argument("--until-unused", action="store_true", help="end with the last user")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    with_prefect = not options.no_prefect
    if options.action == "run":
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        run_control(options.dir, with_prefect=with_prefect, until_unused=options.until_unused)
        return 0
    if options.action == "stop":
        return 0 if stop_control(options.dir) else 1
    start = options.action == "start"
    status = start_control(options.dir, with_prefect=with_prefect) if start else control_status(options.dir)
    if status is None:
        return 1
    sys.stdout.write(status.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
