"""Datagrams: what is opened, and what is refused."""

from __future__ import annotations

import json

import pytest

from peerd.domain.ring import MAX_QUEUES, MAX_TASKS, Broadcast, ClaimRevoked, Ping, Ring, TasksAvailable, TaskScheduled
from peerd.doorbell.datagram import (
    ALL_NODES_BUT,
    HEADER,
    MAC_SIZE,
    MAGIC,
    MAX_BROADCAST_NONCES,
    MAX_DATAGRAM_BYTES,
    REPLAY_WINDOW,
    RejectionReason,
    RingRejected,
    Signer,
    Verifier,
    decode_text,
    encode_text,
)
from tests.support.manual_clock import ManualClock

SECRET = "open, sesame, and let us in"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


@pytest.fixture
def sealer(clock: ManualClock) -> Signer:
    return Signer(SECRET, clock)


@pytest.fixture
def opener(clock: ManualClock) -> Verifier:
    return Verifier(SECRET, "life", clock)


def refusal(opener: Verifier, datagram: bytes) -> RejectionReason:
    with pytest.raises(RingRejected) as refused:
        opener.open(datagram)
    return refused.value.rejection_reason


@pytest.mark.parametrize(
    "ring",
    [
        TasksAvailable(),
        TasksAvailable(("video", "mail")),
        TaskScheduled(within=1.5, at=1_700_000_000.25),
        ClaimRevoked((1, 2**62)),
        Broadcast("prices", {"apple": [1, None, "ä"]}),
        Ping("word"),
    ],
)
def test_what_was_sealed_is_opened(sealer: Signer, opener: Verifier, ring: Ring) -> None:
    assert opener.open(sealer.sign(ring, "life")) == ring


def test_the_largest_rings_go_into_one_datagram(sealer: Signer, opener: Verifier) -> None:
    tasks = ClaimRevoked(tuple(range(10**6, 10**6 + MAX_TASKS)))
    assert opener.open(sealer.sign(tasks, "life")) == tasks
    with pytest.raises(ValueError, match="are allowed"):
        sealer.sign(Broadcast("long", "x" * MAX_DATAGRAM_BYTES), "life")


def test_a_forged_one_is_refused_wherever_it_was_changed(sealer: Signer, opener: Verifier) -> None:
    datagram = sealer.sign(TasksAvailable(("video",)), "life")
    for place in range(len(HEADER), len(datagram)):
        forged = bytearray(datagram)
        forged[place] ^= 1
        assert refusal(opener, bytes(forged)) is RejectionReason.SECRET


def test_one_of_another_secret_is_refused(clock: ManualClock, opener: Verifier) -> None:
    assert refusal(opener, Signer("some other secret", clock).sign(TasksAvailable(), "life")) is RejectionReason.SECRET


def test_a_truncated_one_is_refused_at_every_length(sealer: Signer, opener: Verifier) -> None:
    datagram = sealer.sign(TasksAvailable(("video",)), "life")
    for length in range(len(datagram)):
        assert refusal(opener, datagram[:length]) in {RejectionReason.STRANGE, RejectionReason.SECRET}


def test_an_oversized_one_is_refused_before_anything_else(opener: Verifier) -> None:
    assert refusal(opener, HEADER + b"x" * MAX_DATAGRAM_BYTES) is RejectionReason.STRANGE


def test_one_of_another_version_is_told_from_noise(sealer: Signer, opener: Verifier) -> None:
    datagram = bytearray(sealer.sign(TasksAvailable(), "life"))
    datagram[len(MAGIC)] += 1
    assert refusal(opener, bytes(datagram)) is RejectionReason.VERSION
    assert refusal(opener, b"\x00" * 200) is RejectionReason.STRANGE
    assert refusal(opener, b"") is RejectionReason.STRANGE


def test_one_for_another_life_is_refused(sealer: Signer, opener: Verifier) -> None:
    assert refusal(opener, sealer.sign(TasksAvailable(), "another life")) is RejectionReason.ELSEWHERE


@pytest.mark.parametrize("seconds", [-REPLAY_WINDOW - 1, REPLAY_WINDOW + 1])
def test_one_of_another_time_is_refused(sealer: Signer, opener: Verifier, clock: ManualClock, seconds: float) -> None:
    datagram = sealer.sign(TasksAvailable(), "life")
    clock.now += seconds
    assert refusal(opener, datagram) is RejectionReason.CLOCK


@pytest.mark.parametrize("ring", [TasksAvailable(), TaskScheduled(within=0.0), ClaimRevoked((1,)), Broadcast("prices")])
def test_what_is_replayed_is_refused(sealer: Signer, opener: Verifier, ring: Ring) -> None:
    captured = sealer.sign(ring, "life")
    assert opener.open(captured) == ring
    assert refusal(opener, captured) is RejectionReason.AGAIN


def test_of_more_rings_than_are_remembered_the_oldest_is_forgotten_and_none_is_refused(
    sealer: Signer, opener: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.doorbell.datagram.MAX_RING_NONCES", 5)
    captured = [sealer.sign(TasksAvailable(), "life") for _ in range(6)]
    for datagram in captured:
        opener.open(datagram)
    assert refusal(opener, captured[5]) is RejectionReason.AGAIN
    assert opener.open(captured[0]) == TasksAvailable()


def test_a_notification_is_for_all_nodes_but_the_one_that_sends_it(sealer: Signer, clock: ManualClock) -> None:
    notified, direct = (
        sealer.sign(Broadcast("prices"), ALL_NODES_BUT + "life"),
        sealer.sign(Broadcast("prices"), "life"),
    )
    here, there = (Verifier(SECRET, name, clock, accepts_broadcasts=True) for name in ("life", "another life"))
    assert refusal(here, notified) is RejectionReason.OURS
    assert there.open(decode_text(encode_text(notified))) == Broadcast("prices")
    assert refusal(there, notified) is RejectionReason.AGAIN
    assert refusal(there, direct) is RejectionReason.ELSEWHERE
    assert refusal(Verifier(SECRET, "another life", clock), notified) is RejectionReason.ELSEWHERE


def test_a_message_is_never_taken_twice_however_many_come(sealer: Signer, opener: Verifier, clock: ManualClock) -> None:
    first = sealer.sign(Broadcast("prices"), "life")
    opener.open(first)
    for _ in range(MAX_BROADCAST_NONCES - 1):
        opener.open(sealer.sign(Broadcast("prices"), "life"))
    assert (
        refusal(opener, sealer.sign(Broadcast("prices"), "life")) is RejectionReason.AGAIN
    )  # there is no room to remember it
    clock.now += REPLAY_WINDOW
    assert refusal(opener, first) is RejectionReason.AGAIN
    clock.now += REPLAY_WINDOW + 1
    assert refusal(opener, first) is RejectionReason.CLOCK
    assert opener.open(sealer.sign(Broadcast("prices"), "life")) == Broadcast("prices")


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
                {"type": "work", "queues": ["q"] * (MAX_QUEUES + 1)},
                {"type": "work", "queues": [], "more": 1},
                {"type": "taken", "tasks": list(range(MAX_TASKS + 1))},
                {"type": "taken", "tasks": ["1"]},
                {"type": "due", "within": "soon"},
            )
        ),
        b'{"to":"life","at":1e999,"nonce":"n","ring":{"type":"work"}}',
    ],
)
def test_a_body_that_is_no_ring_is_refused_though_its_sender_has_the_secret(
    clock: ManualClock, opener: Verifier, body: bytes
) -> None:
    from peerd.doorbell import datagram as module  # noqa: PLC0415

    mac = module._mac(module.derive_key(SECRET), body)
    assert len(mac) == MAC_SIZE
    assert refusal(opener, HEADER + mac + body) in {RejectionReason.STRANGE, RejectionReason.CLOCK}
