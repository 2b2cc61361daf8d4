"""What every test starts from: no setting of the user's own reaches it."""

import os

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("COMFYFARM_", "AWS_")):
            monkeypatch.delenv(name)
