"""Datagrams: what is opened, and what is refused."""

from __future__ import annotations

import json

import pytest

from peerd.domain.ring import MOST_QUEUES, MOST_TASKS, Due, Ring, Taken, Told, Trial, Work
from peerd.doorbell.datagram import (
    ALL_BUT,
    HEAD,
    LARGEST,
    MAC_SIZE,
    MAGIC,
    REMEMBERED,
    WINDOW,
    Opener,
    Refused,
    RingRefused,
    Sealer,
    as_text,
    from_text,
)
from tests.support.manual_clock import Clock

SECRET = "open, sesame, and let us in"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000.0)


@pytest.fixture
def sealer(clock: Clock) -> Sealer:
    return Sealer(SECRET, clock)


@pytest.fixture
def opener(clock: Clock) -> Opener:
    return Opener(SECRET, "life", clock)


def refusal(opener: Opener, datagram: bytes) -> Refused:
    with pytest.raises(RingRefused) as refused:
        opener.open(datagram)
    return refused.value.why


@pytest.mark.parametrize(
    "ring",
    [
        Work(),
        Work(("video", "mail")),
        Due(within=1.5, at=1_700_000_000.25),
        Taken((1, 2**62)),
        Told("prices", {"apple": [1, None, "ä"]}),
        Trial("word"),
    ],
)
def test_what_was_sealed_is_opened(sealer: Sealer, opener: Opener, ring: Ring) -> None:
    assert opener.open(sealer.seal(ring, "life")) == ring


def test_the_largest_rings_go_into_one_datagram(sealer: Sealer, opener: Opener) -> None:
    tasks = Taken(tuple(range(10**6, 10**6 + MOST_TASKS)))
    assert opener.open(sealer.seal(tasks, "life")) == tasks
    with pytest.raises(ValueError, match="are allowed"):
        sealer.seal(Told("long", "x" * LARGEST), "life")


def test_a_forged_one_is_refused_wherever_it_was_changed(sealer: Sealer, opener: Opener) -> None:
    datagram = sealer.seal(Work(("video",)), "life")
    for place in range(len(HEAD), len(datagram)):
        forged = bytearray(datagram)
        forged[place] ^= 1
        assert refusal(opener, bytes(forged)) is Refused.SECRET


def test_one_of_another_secret_is_refused(clock: Clock, opener: Opener) -> None:
    assert refusal(opener, Sealer("some other secret", clock).seal(Work(), "life")) is Refused.SECRET


def test_a_truncated_one_is_refused_at_every_length(sealer: Sealer, opener: Opener) -> None:
    datagram = sealer.seal(Work(("video",)), "life")
    for length in range(len(datagram)):
        assert refusal(opener, datagram[:length]) in {Refused.STRANGE, Refused.SECRET}


def test_an_oversized_one_is_refused_before_anything_else(opener: Opener) -> None:
    assert refusal(opener, HEAD + b"x" * LARGEST) is Refused.STRANGE


def test_one_of_another_version_is_told_from_noise(sealer: Sealer, opener: Opener) -> None:
    datagram = bytearray(sealer.seal(Work(), "life"))
    datagram[len(MAGIC)] += 1
    assert refusal(opener, bytes(datagram)) is Refused.VERSION
    assert refusal(opener, b"\x00" * 200) is Refused.STRANGE
    assert refusal(opener, b"") is Refused.STRANGE


def test_one_for_another_life_is_refused(sealer: Sealer, opener: Opener) -> None:
    assert refusal(opener, sealer.seal(Work(), "another life")) is Refused.ELSEWHERE


@pytest.mark.parametrize("seconds", [-WINDOW - 1, WINDOW + 1])
def test_one_of_another_time_is_refused(sealer: Sealer, opener: Opener, clock: Clock, seconds: float) -> None:
    datagram = sealer.seal(Work(), "life")
    clock.now += seconds
    assert refusal(opener, datagram) is Refused.CLOCK


@pytest.mark.parametrize("ring", [Work(), Due(within=0.0), Taken((1,)), Told("prices")])
def test_what_is_replayed_is_refused(sealer: Sealer, opener: Opener, ring: Ring) -> None:
    captured = sealer.seal(ring, "life")
    assert opener.open(captured) == ring
    assert refusal(opener, captured) is Refused.AGAIN


def test_of_more_rings_than_are_remembered_the_oldest_is_forgotten_and_none_is_refused(
    sealer: Sealer, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.doorbell.datagram.RINGS_REMEMBERED", 5)
    captured = [sealer.seal(Work(), "life") for _ in range(6)]
    for datagram in captured:
        opener.open(datagram)
    assert refusal(opener, captured[5]) is Refused.AGAIN
    assert opener.open(captured[0]) == Work()


def test_a_notification_is_for_all_nodes_but_the_one_that_sends_it(sealer: Sealer, clock: Clock) -> None:
    notified, direct = sealer.seal(Told("prices"), ALL_BUT + "life"), sealer.seal(Told("prices"), "life")
    here, there = (Opener(SECRET, name, clock, opens_those_for_all=True) for name in ("life", "another life"))
    assert refusal(here, notified) is Refused.OURS
    assert there.open(from_text(as_text(notified))) == Told("prices")
    assert refusal(there, notified) is Refused.AGAIN
    assert refusal(there, direct) is Refused.ELSEWHERE
    assert refusal(Opener(SECRET, "another life", clock), notified) is Refused.ELSEWHERE


def test_a_message_is_never_taken_twice_however_many_come(sealer: Sealer, opener: Opener, clock: Clock) -> None:
    first = sealer.seal(Told("prices"), "life")
    opener.open(first)
    for _ in range(REMEMBERED - 1):
        opener.open(sealer.seal(Told("prices"), "life"))
    assert refusal(opener, sealer.seal(Told("prices"), "life")) is Refused.AGAIN  # there is no room to remember it
    clock.now += WINDOW
    assert refusal(opener, first) is Refused.AGAIN
    clock.now += WINDOW + 1
    assert refusal(opener, first) is Refused.CLOCK
    assert opener.open(sealer.seal(Told("prices"), "life")) == Told("prices")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 1000,
        *(
            json.dumps({"to": "life", "at": 1_700_000_000.0, "nonce": "n", "ring": ring}).encode()
            for ring in (
                None,
                {"type": "unknown"},
                {"type": "work", "queues": ["no queue!"]},
                {"type": "work", "queues": ["q"] * (MOST_QUEUES + 1)},
                {"type": "work", "queues": [], "more": 1},
                {"type": "taken", "tasks": list(range(MOST_TASKS + 1))},
                {"type": "taken", "tasks": ["1"]},
                {"type": "due", "within": "soon"},
            )
        ),
        b'{"to":"life","at":1e999,"nonce":"n","ring":{"type":"work"}}',
    ],
)
def test_a_body_that_is_no_ring_is_refused_though_its_sender_has_the_secret(
    clock: Clock, opener: Opener, body: bytes
) -> None:
    from peerd.doorbell import datagram as module  # noqa: PLC0415

    mac = module._mac(module.key_of(SECRET), body)
    assert len(mac) == MAC_SIZE
    assert refusal(opener, HEAD + mac + body) in {Refused.STRANGE, Refused.CLOCK}
