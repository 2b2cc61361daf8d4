"""What every test starts from: no setting of the user's own reaches it."""

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of a property.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, one runs all that needs a Prefect server: two are too much for two cores."""
    for item in items:
        if item.get_closest_marker("prefect") is not None:
            item.add_marker(pytest.mark.xdist_group("prefect"))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("COMFYFARM_", "AWS_")):
            monkeypatch.delenv(name)
