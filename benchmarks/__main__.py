"""`python -m benchmarks [GROUP…]`: one JSON object a line for each figure."""

import importlib
import sys
import traceback

GROUPS = ("road", "runner", "preflight", "hydrate")


def main(names: list[str]) -> int:
    """Run the named groups, or all. A figure below its bar says so; a crash exits non-zero."""
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    crashed = False
    for name in names or GROUPS:
        try:
            for figure in importlib.import_module(f"benchmarks.{name}").figures():
                print(figure.as_json(), flush=True)
        except Exception:  # noqa: BLE001 - one group's crash must not hide the others
            traceback.print_exc()
            crashed = True
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
