"""Whose turn it is: the same on every host, fair, and steady."""

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.peers.turns import turns

_HOSTS = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=12, unique=True)
_SHA256 = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(_SHA256, _HOSTS, st.randoms(use_true_random=False))
def test_every_host_computes_the_same_order(sha256: str, hosts: list[str], chance: object) -> None:
    shuffled = sorted(hosts, key=lambda _: chance.random())  # type: ignore[attr-defined]

    assert turns(sha256, shuffled) == turns(sha256, hosts)
    assert set(turns(sha256, hosts)) == set(hosts)


@given(_SHA256, _HOSTS)
def test_a_host_that_is_named_twice_has_one_turn(sha256: str, hosts: list[str]) -> None:
    assert turns(sha256, hosts + hosts) == turns(sha256, hosts)


@given(_SHA256, _HOSTS)
def test_a_host_that_goes_changes_the_order_of_no_others(sha256: str, hosts: list[str]) -> None:
    left = [host for host in turns(sha256, hosts) if host != hosts[0]]

    assert turns(sha256, hosts[1:]) == tuple(left)


def test_first_turns_are_shared_out() -> None:
    files = [hashlib.sha256(bytes([n // 256, n % 256])).hexdigest() for n in range(1000)]
    firsts = Counter(turns(file, ["a", "b", "c", "d"])[0] for file in files)

    assert min(firsts.values()) > 180
