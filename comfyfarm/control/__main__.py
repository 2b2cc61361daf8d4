"""The process that `launch` starts: `python -m comfyfarm.control --dir DIR [--no-prefect] [--until-unused]`.

For people there is `comfyfarm control`.
"""

import argparse
import logging
import sys
from pathlib import Path

from comfyfarm.control.server import run_control
from comfyfarm.errors import FarmError


def main() -> int:
    """Run the control server until it is stopped; 0, or the exit code of the error."""
    parser = argparse.ArgumentParser(prog="comfyfarm.control", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the state directory")
    parser.add_argument("--no-prefect", action="store_true", help="PostgreSQL alone")
    parser.add_argument("--until-unused", action="store_true", help="end with the last user")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run_control(options.dir, with_prefect=not options.no_prefect, until_unused=options.until_unused)
    except FarmError as exc:
        sys.stderr.write(f"comfyfarm control: {exc}\n")
        return exc.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
