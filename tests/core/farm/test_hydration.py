"""What flows say of model files: each row, and all bytes together."""

from comfyfarm.clock import SystemClock
from comfyfarm.farm.hydration import ByteTally, ModelRow


class Still(SystemClock):
    """Goes on only when it is told to."""

    at_s = 100.0

    def monotonic(self) -> float:
        return self.at_s


def test_a_row_says_what_became_of_the_file() -> None:
    row = ModelRow(title="vae/a", sha256="0" * 64, size=4_000_000)

    assert row.cells()["state"] == "was here"
    came = row.model_copy(update={"fetched": True, "seconds": 2.0, "source": "s3://m"})
    assert came.cells() == {
        "file": "vae/a",
        "size": "4.0 MB",
        "source": "s3://m",
        "seconds": "2.0",
        "rate": "2.0 MB/s",
        "state": "fetched",
    }
    assert row.model_copy(update={"error": "no source"}).cells()["state"] == "failed: no source"


def test_a_tally_says_how_far_and_how_fast() -> None:
    clock = Still()
    tally = ByteTally(40_000_000, clock=clock)
    tally.add(15_000_000)
    tally.add(-5_000_000)
    clock.at_s += 2

    assert (tally.percent, tally.text()) == (25.0, "10.0 MB of 40.0 MB, 5.0 MB/s")


def test_bytes_that_come_twice_and_are_taken_back_stay_within_bounds() -> None:
    tally = ByteTally(10, clock=Still())
    tally.add(-5)
    assert tally.percent == 0.0
    tally.add(50)
    assert tally.percent == 100.0
