"""Where the application (flows, blocks, deployments) lies: the checkout, or the copy in the wheel."""

from pathlib import Path


def app_dir() -> Path:
    """The directory from which `flows.render_batch` can be imported and run."""
    package = Path(__file__).resolve().parent
    installed = package / "_app"
    return installed if installed.is_dir() else package.parent
