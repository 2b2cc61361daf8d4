"""The error tree: drawn as it is, and fit for crossing processes."""

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from comfyfarm import errors
from comfyfarm.errors import FarmError, TryLater

CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, FarmError)]


def drawn() -> Iterator[tuple[str, str]]:
    """Class and parent, as the module's docstring draws them."""
    above: list[str] = []
    drawing = str(errors.__doc__).split("\n\n")[1]
    for line in drawing.splitlines():
        found = re.match(r"^([│ ]*(?:[├└]── )?)(\w+)", line)
        assert found is not None, line
        depth = len(found[1]) // 4
        above[depth:] = [found[2]]
        yield found[2], above[depth - 1] if depth else "Exception"


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    assert dict(drawn()) == {one.__name__: one.__bases__[0].__name__ for one in CLASSES}


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_pickling(kind: type[FarmError]) -> None:
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    named = [one for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    values = {"names": ("a", "b"), "least_s": 2.5}
    error = kind(*(values.get(one.name, one.name) for one in named)) if named else kind("what happened")

    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert type(again) is kind
    assert str(again) == str(error) != ""
    assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", CLASSES)
def test_only_what_may_succeed_later_says_try_later(kind: type[FarmError]) -> None:
    assert kind.exit_code in {1, 2, 3}
    assert issubclass(kind, TryLater) is (kind.exit_code == 3)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_means(kind: type[FarmError]) -> None:
    assert kind.__doc__
    assert kind.__doc__ != FarmError.__doc__ or kind is FarmError
