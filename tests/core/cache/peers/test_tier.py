"""Which peers are offered for a file, and how long a host waits for others."""

import contextlib
import http.client
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from comfyfarm.cache.held_folder import hold_folder
from comfyfarm.cache.peers import asking
from comfyfarm.cache.peers import tier as tier_module
from comfyfarm.cache.peers.asking import PeerAnswer, PeerGone, Presence, ask
from comfyfarm.cache.peers.roster import MOST_ASKED, QUIET_S, REST_S, Roster
from comfyfarm.cache.peers.tier import PeerTier
from comfyfarm.cache.peers.turns import turns
from comfyfarm.clock import SystemClock
from comfyfarm.errors import UsageError


class Stopping(Exception):
    """The transfer is to end."""


class PushedClock:
    """A clock that tests push; it also goes on by itself, as slowly as the machine's."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.ahead_s = 0.0

    def now(self) -> float:
        return self._system.now() + self.ahead_s

    def monotonic(self) -> float:
        return self._system.monotonic() + self.ahead_s

    async def sleep(self, seconds: float) -> None:
        await self._system.sleep(seconds)


def go_on() -> None:
    """Nobody stops."""


def addresses(tier: PeerTier, file: Any, stop: Callable[[], None] = go_on) -> list[str]:
    return [source.address for source in tier.sources(file, stop)]


@pytest.fixture
def me(make_host: Callable[..., Any]) -> Any:
    """The host that wants files."""
    return make_host()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for turns. Patched because the tests of peers that have the file are not about them."""
    monkeypatch.setattr(tier_module, "GRACE_S", 0.0)


@pytest.fixture
def curt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is told early. Patched because three seconds are long for a test."""
    monkeypatch.setattr(asking, "ANSWER_S", 0.5)


@contextlib.contextmanager
def fetching(host: Any, file: Any) -> Iterator[Callable[[], None]]:
    """The host fetches a file; what is given makes it grow."""
    held = hold_folder(host.blobs.root / ".partial" / file.sha256, stop=go_on)
    data = held.path / "data"
    data.write_bytes(b"")
    grown = iter(range(1, 10**6))
    try:
        yield lambda: os.utime(data, ns=(0, next(grown)))
    finally:
        data.unlink()
        held.remove()


def silent_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.usefixtures("quick")
def test_peers_that_have_the_file_whole_are_offered(me: Any, make_host: Any, file: Any) -> None:
    has, has_not, has_half = make_host(), make_host(), make_host()
    has.put(file)
    has_half.put(file, data=file.data[:-1])

    (source,) = me.tier(has.url, has_not.url, has_half.url).sources(file, go_on)

    assert source.address == f"{has.url}/sha256/{file.sha256[:2]}/{file.sha256}"
    assert source.request().url == source.address
    assert not source.renew()


@pytest.mark.usefixtures("quick")
def test_the_token_goes_with_the_request_and_into_no_text(make_host: Any, file: Any) -> None:
    me, other = make_host(token="s3cret"), make_host(token="s3cret")
    other.put(file)

    (source,) = me.tier(other.url).sources(file, go_on)

    request = source.request()
    assert request.headers == {"Authorization": "Bearer s3cret"}
    assert other.ask(urlsplit(request.url).path, token=None, **request.headers).body == file.data
    assert "s3cret" not in f"{source!r} {request!r} {source.address}"


@pytest.mark.usefixtures("quick")
def test_a_host_never_asks_itself_twice(me: Any, file: Any) -> None:
    me.put(file)
    tier = me.tier(me.url)

    assert addresses(tier, file) == []
    assert addresses(tier, file) == []

    metrics = me.ask("/metrics").body.decode()
    assert 'comfyfarm_peer_requests_total{status="200"} 1' in metrics


@pytest.mark.usefixtures("quick")
def test_load_spreads_over_all_that_have_the_file(me: Any, make_host: Any, file: Any) -> None:
    hosts = [make_host() for _ in range(3)]
    for host in hosts:
        host.put(file)
    tier = me.tier(*(host.url for host in hosts))

    firsts = {next(iter(tier.sources(file, go_on))).address for _ in range(40)}

    assert len(firsts) == 3


@pytest.mark.usefixtures("quick")
def test_no_more_than_three_are_offered(me: Any, make_host: Any, file: Any) -> None:
    hosts = [make_host() for _ in range(5)]
    for host in hosts:
        host.put(file)

    found = addresses(me.tier(*(host.url for host in hosts)), file)

    assert len(found) == len(set(found)) == 3


@pytest.mark.usefixtures("quick")
def test_a_dead_peer_is_left_alone_for_half_a_minute(
    me: Any, file: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock, address = PushedClock(), silent_address()
    tier = PeerTier([address], None, me.own_id, clock=clock)

    with caplog.at_level(logging.WARNING):
        assert addresses(tier, file) == []
        assert addresses(tier, file) == []
        assert len(caplog.records) == 1
        clock.ahead_s += REST_S
        assert addresses(tier, file) == []

    assert len(caplog.records) == 2
    assert f"http://{address} is left alone for 30 s: Connection refused" in caplog.text


@pytest.mark.usefixtures("quick", "curt")
def test_a_peer_that_says_nothing_holds_up_a_file_for_seconds_only(
    me: Any, make_host: Any, file: Any
) -> None:
    has = make_host()
    has.put(file)
    clock = SystemClock()
    began = clock.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute_url = f"127.0.0.1:{mute.getsockname()[1]}"

        found = addresses(me.tier(mute_url, has.url), file)

    assert len(found) == 1
    assert clock.monotonic() - began < 30


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "answered 200, as no peer does"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/?token=hunter2\r\n\r\n", "answered 302, as no peer does"),
        (b"HTTP/1.1 401 No\r\n\r\n", "it wants another token"),
        (b"SSH-2.0-hunter2\r\n", "BadStatusLine"),
        (b"", "RemoteDisconnected|reset"),
        (b"HTTP/1.1 200 OK\r\nX-Comfyfarm-Peer: hunter2\r\nContent-Length: 100000\r\n\r\n", "answered 200"),
    ],
)
def test_what_does_not_answer_as_a_peer_is_none(file: Any, answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_once, args=(server, answer))
        thread.start()
        with pytest.raises(PeerGone, match=reason) as failure:
            ask(f"http://127.0.0.1:{server.getsockname()[1]}", file, token="s3cret")
        thread.join()

    assert "hunter2" not in str(failure.value)
    assert "s3cret" not in str(failure.value)


def answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(answer)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("address", ["http://a..b:1", f"http://{'a' * 70}:1"])
def test_a_name_that_cannot_be_one_is_a_dead_peer(
    me: Any, file: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert addresses(me.tier(address), file) == []
    assert f"peer {address} is left alone" in caplog.text


@pytest.mark.usefixtures("quick")
def test_a_peer_that_lied_is_never_asked_again(me: Any, make_host: Any, file: Any, make_file: Any) -> None:
    liar, honest = make_host(), make_host()
    liar.put(file, data=b"x" * file.size)
    other = make_file(2)
    for host in (liar, honest):
        host.put(other)
    tier = me.tier(liar.url, honest.url)

    for source in tier.sources(file, go_on):
        tier.distrust(source.address)
    tier.distrust("http://somebody-else:1")

    assert addresses(tier, file) == []
    assert [urlsplit(found).netloc for found in addresses(tier, other)] == [urlsplit(honest.url).netloc]


@pytest.mark.usefixtures("quick")
def test_a_peer_whose_transfer_broke_rests(me: Any, make_host: Any, file: Any) -> None:
    other = make_host()
    other.put(file)
    clock = PushedClock()
    tier = PeerTier([other.url], None, me.own_id, clock=clock)

    (first,) = addresses(tier, file)
    tier.rest(first, "reset")

    assert addresses(tier, file) == []
    clock.ahead_s += REST_S
    assert addresses(tier, file) == [first]


def test_a_file_that_grows_elsewhere_is_waited_for(me: Any, make_host: Any, file: Any) -> None:
    other = make_host()
    with fetching(other, file) as grow:
        polls = 0

        def stop() -> None:
            nonlocal polls
            polls += 1
            grow()
            if polls == 10:
                other.put(file)

        found = addresses(me.tier(other.url), file, stop)

    assert len(found) == 1
    assert polls >= 10


def test_a_file_that_does_not_grow_is_fetched_by_oneself(
    me: Any, make_host: Any, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because ten seconds are long for a test.
    monkeypatch.setattr(tier_module, "STALL_S", 0.5)
    monkeypatch.setattr(tier_module, "SHORT_STALL_S", 0.5)
    other = make_host()
    clock = SystemClock()
    began = clock.monotonic()
    with fetching(other, file):
        assert addresses(me.tier(other.url), file) == []

    assert clock.monotonic() - began >= 0.5


def test_a_peer_that_says_for_ever_that_a_file_grows_is_waited_for_no_longer(
    me: Any, make_host: Any, file: Any
) -> None:
    other, clock = make_host(), PushedClock()
    tier = PeerTier([other.url], None, me.own_id, clock=clock)
    with fetching(other, file) as grow:

        def stop() -> None:
            grow()
            clock.ahead_s += 5

        assert addresses(tier, file, stop) == []

    assert clock.ahead_s < 200


def test_a_peer_that_dies_while_the_file_comes_is_not_waited_for(
    me: Any, make_host: Any, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_host()
    polls = 0
    with fetching(other, file) as grow:

        def stop() -> None:
            nonlocal polls
            polls += 1
            grow()
            if polls == 5:
                other.server.shutdown()
                other.server.end()

        assert addresses(me.tier(other.url), file, stop) == []

    assert polls >= 5


def test_stop_ends_the_waiting(me: Any, make_host: Any, file: Any) -> None:
    other = make_host()
    polls = 0

    def stop() -> None:
        nonlocal polls
        polls += 1
        if polls == 10:
            raise Stopping

    with fetching(other, file), pytest.raises(Stopping):
        addresses(me.tier(other.url), file, stop)


def test_whose_turn_is_first_waits_for_nobody_and_the_next_for_a_moment(
    make_host: Any, make_file: Any
) -> None:
    one, two = make_host(), make_host()
    file = next(
        file
        for file in map(make_file, range(100))
        if turns(file.sha256, (one.own_id, two.own_id))[0] == one.own_id
    )
    clock = SystemClock()
    began = clock.monotonic()
    assert addresses(one.tier(two.url), file) == []
    first_s = clock.monotonic() - began
    began = clock.monotonic()
    assert addresses(two.tier(one.url), file) == []
    second_s = clock.monotonic() - began

    assert second_s >= tier_module.GRACE_S
    assert first_s < second_s


def test_nobody_waits_for_the_turn_of_peers_that_fetch_nothing_for_long() -> None:
    clock = PushedClock()
    roster = Roster(["a:1", "b:1"], "0" * 32, clock)
    quiet, busy = PeerAnswer("1" * 32, Presence.ABSENT), PeerAnswer("2" * 32, Presence.ABSENT, is_busy=True)
    roster.heard("http://a:1", quiet)
    roster.heard("http://b:1", busy)
    sha256 = next(sha for sha in map("{:064x}".format, range(1000)) if len(roster.ahead(sha)) == 2)

    clock.ahead_s += QUIET_S
    assert roster.ahead(sha256) == ("http://b:1",)
    roster.heard("http://a:1", PeerAnswer("1" * 32, Presence.COMING, is_busy=True))
    assert set(roster.ahead(sha256)) == {"http://a:1", "http://b:1"}


def test_of_many_peers_those_are_asked_whose_turn_comes_first() -> None:
    urls = [f"http://host-{n}:1" for n in range(40)]
    roster = Roster(urls, "f" * 32, SystemClock())
    ids = {f"{n:032x}": url for n, url in enumerate(urls)}
    for peer_id, url in ids.items():
        roster.heard(url, PeerAnswer(peer_id, Presence.ABSENT))
    first = turns("ab" * 32, ids)[0]

    asked = [roster.askable("ab" * 32) for _ in range(30)]

    assert all(len(each) == len(set(each)) == MOST_ASKED for each in asked)
    assert all(ids[first] in each for each in asked)
    assert set().union(*asked) == set(urls)


def test_of_many_peers_that_nobody_knows_yet_some_are_asked() -> None:
    urls = [f"http://host-{n}:1" for n in range(500)]
    roster = Roster(urls, "f" * 32, SystemClock())
    roster.heard(urls[7], PeerAnswer("7" * 32, Presence.ABSENT))

    asked = [roster.askable("ab" * 32) for _ in range(3)]

    assert all(len(each) == len(set(each)) == MOST_ASKED for each in asked)
    assert all(urls[7] in each for each in asked)
    assert len(set(asked)) > 1


def test_of_two_hosts_that_wait_for_each_other_the_first_goes_on_soon(
    make_host: Any, make_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because three seconds are long for a test.
    monkeypatch.setattr(tier_module, "SHORT_STALL_S", 0.3)
    one, two, file = make_host(), make_host(), make_file(8)
    order = turns(file.sha256, (one.own_id, two.own_id))
    first, second = (one, two) if order[0] == one.own_id else (two, one)
    clock = SystemClock()
    began = clock.monotonic()

    with fetching(one, file), fetching(two, file):
        assert addresses(first.tier(second.url), file) == []

    assert clock.monotonic() - began < tier_module.STALL_S


def test_a_peer_of_no_address_is_refused(me: Any) -> None:
    with pytest.raises(UsageError, match="COMFYFARM_PEERS"):
        me.tier("nonsense")


def test_the_library_reads_what_the_server_refuses_with(me: Any, make_host: Any, file: Any) -> None:
    full = make_host(most_connections=1)
    full.put(file)
    with contextlib.closing(http.client.HTTPConnection(urlsplit(full.url).netloc)) as connection:
        connection.request("HEAD", "/whoami")
        connection.getresponse().read()
        answer = ask(full.url, file, token=None)

    assert answer == PeerAnswer(full.own_id, Presence.ABSENT, is_busy=True)
