"""Builds the wheel and asserts what lies in it: one top-level package, with the application inside."""

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "comfyfarm/cli/__init__.py",
    "comfyfarm/workflow/object_info.json",
    "comfyfarm/workflow/folders.json",
    "comfyfarm/workflow/pack_folders.json",
    "comfyfarm/workflow/implicit_models.json",
    "comfyfarm/ledger/migrations/env.py",
    "comfyfarm/_app/flows/render_batch.py",
    "comfyfarm/_app/blocks/comfy_host.py",
    "comfyfarm/_app/deployments/deploy.py",
    "comfyfarm/_app/deployments/prefect.yaml",
)


def main() -> int:
    """Build, look, and try the installed package in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "uv", "build", "--wheel", "--quiet", "--out-dir", folder, str(ROOT)]
        subprocess.run([*build, "--no-build-isolation", "--python", sys.executable], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        faults = [f"missing: {name}" for name in NEEDED if name not in names]
        tops = {name.partition("/")[0] for name in names} - {"comfyfarm"}
        faults += [f"top-level: {name}" for name in tops if not name.endswith(".dist-info")]
        faults += _faults_when_installed(wheel, Path(folder) / "site")
    for fault in faults:
        print(f"wheel: {fault}")
    print(f"wheel: {wheel.name}, {len(names)} files" if not faults else "wheel: wrong")
    return 1 if faults else 0


def _faults_when_installed(wheel: Path, site: Path) -> list[str]:
    """Import it from the unpacked wheel alone, away from the checkout and its editable install."""
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        "import sys, importlib.util as u\n"
        f"sys.path += [{str(site)!r}, {sysconfig.get_path('purelib')!r}]\n"
        "import comfyfarm.app as a\n"
        "assert a.app_dir().name == '_app', a.app_dir()\n"
        "found = [n for n in ('flows', 'blocks', 'deployments', 'fake_server', 'tests') if u.find_spec(n)]\n"
        "assert not found, found\n"
    )
    # -S: the .pth of the editable install, which names the checkout, is not read.
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    return [done.stderr.strip().splitlines()[-1]] if done.returncode != 0 else []


if __name__ == "__main__":
    sys.exit(main())
