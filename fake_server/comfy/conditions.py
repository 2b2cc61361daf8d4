"""What is wrong with the whole server for a while, whatever the prompts are given."""

import math
import time

from fake_server.comfy.behaviours import SWITCHED, Acts, Behaviour

_DELAYS = frozenset({Behaviour.SLOW_OBJECT_INFO})
"""Their number is no duration."""


class Conditions:
    """The behaviours that are switched on, each until its time is over or `ok` is said."""

    def __init__(self) -> None:
        self._on: dict[Behaviour, tuple[float, float | None]] = {}

    def switch_on(self, acts: Acts) -> None:
        """Begin with all of these; the number is for how many seconds, else until `ok`."""
        for word, number in acts.words:
            seconds = math.inf if number is None or word in _DELAYS else number
            self._on[word] = (time.monotonic() + seconds, number)

    def begin_with(self, acts: Acts) -> None:
        """Begin with those that a script gives to a prompt although they are about the server."""
        self.switch_on(Acts(words=tuple(each for each in acts.words if each[0] in SWITCHED)))

    def end(self) -> None:
        """Be as it is."""
        self._on.clear()

    def __contains__(self, behaviour: Behaviour) -> bool:
        return self.left_s(behaviour) > 0

    def left_s(self, behaviour: Behaviour) -> float:
        """For how many seconds more it lasts; 0 when it is not on."""
        until, _ = self._on.get(behaviour, (0.0, None))
        return max(0.0, until - time.monotonic())

    def delay_s(self, behaviour: Behaviour, default: float) -> float:
        """The number that it was switched on with, 0 when it is not on."""
        if behaviour not in self:
            return 0.0
        number = self._on[behaviour][1]
        return default if number is None else number

    def acts(self) -> Acts:
        """All that is on now."""
        return Acts(words=tuple((word, self._on[word][1]) for word in self._on if word in self))
