"""How large the parts of a file are, and how many connections bring them: decided from what was measured.

On a fat link a few connections are enough, and more cost CPU; where each one is throttled, or far away, the
rate grows with their number.
"""

import math
from dataclasses import dataclass

LEAST_PART_BYTES = 1 << 20
MOST_PART_BYTES = 8 << 20
"""A few connections at such parts stay within the landing's buffers, so that the hash reads nothing back."""
_PARTS = 64

FEW, MANY, MOST = 4, 16, 32
FAR_S = 0.01
"""An answer that takes so long to begin is from afar, which binds one connection."""
_THROTTLED_BYTES_S = 25e6
"""One connection that brings less is throttled."""
_FAT_BYTES_S = 100e6
"""With connections that bring so much each, more are of no use."""
_LOOK_S = 0.1
"""Rates are those of at least so long."""
_JUDGE_S = 1.0
"""More connections must have paid after so long."""
_PAYS = 1.15
_CUT_EACH_S = 0.5
"""Many complaints at once are one."""
_CALM_S = 5.0
"""So long without a complaint, and one connection more is tried."""


def part_bytes(size: int) -> int:
    """Bytes of one request: a power of two that makes about 64 parts of the file."""
    wanted = LEAST_PART_BYTES
    while wanted < MOST_PART_BYTES and wanted * _PARTS < size:
        wanted *= 2
    return wanted


@dataclass(frozen=True)
class Sample:
    """What has been received so far, by all connections together."""

    now_s: float
    total_bytes: int
    receiving_s: float
    """The time that they all spent in receiving: not in waiting for the disk."""


class Pace:
    """How many connections one file is to have."""

    def __init__(self, *, fixed: int | None = None) -> None:
        self.wanted = 1
        self._fixed = fixed
        self._since: Sample | None = None
        self._rate_before: float | None = None
        self._before = FEW
        self._is_settled = False
        self._complaints = 0
        self._complained_s = self._cut_s = -math.inf
        self._is_cut = False

    def begin(self, round_trip_s: float, sample: Sample) -> None:
        """The first answer is good."""
        self.wanted = self._fixed or (MANY if round_trip_s >= FAR_S else FEW)
        self._since = sample

    def prepare(self, waited_s: float) -> int:
        """How many threads to have ready before the first answer, which may come from afar."""
        self.wanted = self._fixed or (MANY if waited_s >= FAR_S else FEW)
        return self.wanted

    def complain(self, now_s: float) -> None:
        """The server refused a connection, or asked for fewer requests: at the second one it gets fewer."""
        if now_s - self._complained_s > 2 * _CALM_S:
            self._complaints = 0
        self._complaints += 1
        self._complained_s = now_s
        if self._complaints > 1 and now_s - self._cut_s > _CUT_EACH_S:
            self.wanted = max(1, self.wanted // 2)
            self._cut_s = now_s
            self._is_cut = True

    def look(self, sample: Sample) -> int:
        """What is to be now; cheap, called often."""
        if self._is_cut:
            self._recover(sample.now_s)
        elif self._since is not None and self._fixed is None and not self._is_settled:
            self._grow(sample, self._since)
        return self.wanted

    def _recover(self, now_s: float) -> None:
        if now_s - max(self._complained_s, self._cut_s) > _CALM_S:
            self._cut_s = now_s
            self.wanted = min(self._fixed or MOST, self.wanted + 1)

    def _grow(self, sample: Sample, since: Sample) -> None:
        took_s = sample.now_s - since.now_s
        came = sample.total_bytes - since.total_bytes
        receiving_s = sample.receiving_s - since.receiving_s
        if took_s < _LOOK_S or not came or receiving_s <= 0:
            return
        each = came / receiving_s
        if self._rate_before is not None:
            self._judge(sample, came / took_s, took_s)
        elif each < _THROTTLED_BYTES_S:
            self._raise_to(MANY if self.wanted < MANY else MOST, sample, rate=came / took_s)
        elif each < _FAT_BYTES_S and took_s >= _JUDGE_S:
            self._raise_to(min(MOST, self.wanted * 2), sample, rate=came / took_s)
        elif took_s >= 2 * _JUDGE_S:
            self._since = sample

    def _raise_to(self, wanted: int, sample: Sample, *, rate: float) -> None:
        if wanted == self.wanted:
            self._is_settled = True
            return
        # From few to many is no matter for doubt where each one is throttled.
        self._rate_before = None if self.wanted < MANY <= wanted else rate
        self._before, self.wanted, self._since = self.wanted, wanted, sample

    def _judge(self, sample: Sample, rate: float, took_s: float) -> None:
        if took_s < _JUDGE_S:
            return
        if self._rate_before is not None and rate < self._rate_before * _PAYS:
            self.wanted, self._is_settled = self._before, True
        self._rate_before, self._since = None, sample
