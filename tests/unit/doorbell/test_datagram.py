"""Datagrams: which are accepted, and which are rejected."""

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
def signer(clock: ManualClock) -> Signer:
    return Signer(SECRET, clock)


@pytest.fixture
def verifier(clock: ManualClock) -> Verifier:
    return Verifier(SECRET, "life", clock)


def rejection(verifier: Verifier, datagram: bytes) -> RejectionReason:
    with pytest.raises(RingRejected) as error:
        verifier.open(datagram)
    return error.value.rejection_reason


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
def test_a_signed_ring_is_accepted(signer: Signer, verifier: Verifier, ring: Ring) -> None:
    assert verifier.open(signer.sign(ring, "life")) == ring


def test_the_largest_rings_go_into_one_datagram(signer: Signer, verifier: Verifier) -> None:
    tasks = ClaimRevoked(tuple(range(10**6, 10**6 + MAX_TASKS)))
    assert verifier.open(signer.sign(tasks, "life")) == tasks
    with pytest.raises(ValueError, match="are allowed"):
        signer.sign(Broadcast("long", "x" * MAX_DATAGRAM_BYTES), "life")


def test_a_datagram_with_any_changed_byte_is_rejected(signer: Signer, verifier: Verifier) -> None:
    datagram = signer.sign(TasksAvailable(("video",)), "life")
    for index in range(len(HEADER), len(datagram)):
        forged = bytearray(datagram)
        forged[index] ^= 1
        assert rejection(verifier, bytes(forged)) is RejectionReason.SECRET


def test_a_datagram_of_another_secret_is_rejected(clock: ManualClock, verifier: Verifier) -> None:
    assert (
        rejection(verifier, Signer("some other secret", clock).sign(TasksAvailable(), "life")) is RejectionReason.SECRET
    )


def test_a_truncated_datagram_is_rejected_at_every_length(signer: Signer, verifier: Verifier) -> None:
    datagram = signer.sign(TasksAvailable(("video",)), "life")
    for length in range(len(datagram)):
        assert rejection(verifier, datagram[:length]) in {RejectionReason.STRANGE, RejectionReason.SECRET}


def test_an_oversized_datagram_is_rejected_before_any_other_check(verifier: Verifier) -> None:
    assert rejection(verifier, HEADER + b"x" * MAX_DATAGRAM_BYTES) is RejectionReason.STRANGE


def test_a_datagram_of_another_version_is_distinguished_from_invalid_bytes(signer: Signer, verifier: Verifier) -> None:
    datagram = bytearray(signer.sign(TasksAvailable(), "life"))
    datagram[len(MAGIC)] += 1
    assert rejection(verifier, bytes(datagram)) is RejectionReason.VERSION
    assert rejection(verifier, b"\x00" * 200) is RejectionReason.STRANGE
    assert rejection(verifier, b"") is RejectionReason.STRANGE


def test_a_datagram_for_another_incarnation_is_rejected(signer: Signer, verifier: Verifier) -> None:
    assert rejection(verifier, signer.sign(TasksAvailable(), "another life")) is RejectionReason.ELSEWHERE


@pytest.mark.parametrize("seconds", [-REPLAY_WINDOW - 1, REPLAY_WINDOW + 1])
def test_a_datagram_of_another_time_is_rejected(
    signer: Signer, verifier: Verifier, clock: ManualClock, seconds: float
) -> None:
    datagram = signer.sign(TasksAvailable(), "life")
    clock.now += seconds
    assert rejection(verifier, datagram) is RejectionReason.CLOCK


@pytest.mark.parametrize("ring", [TasksAvailable(), TaskScheduled(within=0.0), ClaimRevoked((1,)), Broadcast("prices")])
def test_a_replayed_ring_is_rejected(signer: Signer, verifier: Verifier, ring: Ring) -> None:
    captured = signer.sign(ring, "life")
    assert verifier.open(captured) == ring
    assert rejection(verifier, captured) is RejectionReason.AGAIN


def test_of_more_rings_than_are_remembered_the_oldest_is_forgotten_and_none_is_rejected(
    signer: Signer, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.doorbell.datagram.MAX_RING_NONCES", 5)
    captured = [signer.sign(TasksAvailable(), "life") for _ in range(6)]
    for datagram in captured:
        verifier.open(datagram)
    assert rejection(verifier, captured[5]) is RejectionReason.AGAIN
    assert verifier.open(captured[0]) == TasksAvailable()


def test_a_notification_is_for_all_nodes_but_the_one_that_sends_it(signer: Signer, clock: ManualClock) -> None:
    notified, direct = (
        signer.sign(Broadcast("prices"), ALL_NODES_BUT + "life"),
        signer.sign(Broadcast("prices"), "life"),
    )
    here, there = (Verifier(SECRET, name, clock, accepts_broadcasts=True) for name in ("life", "another life"))
    assert rejection(here, notified) is RejectionReason.OURS
    assert there.open(decode_text(encode_text(notified))) == Broadcast("prices")
    assert rejection(there, notified) is RejectionReason.AGAIN
    assert rejection(there, direct) is RejectionReason.ELSEWHERE
    assert rejection(Verifier(SECRET, "another life", clock), notified) is RejectionReason.ELSEWHERE


def test_a_message_is_never_taken_twice_however_many_come(
    signer: Signer, verifier: Verifier, clock: ManualClock
) -> None:
    first = signer.sign(Broadcast("prices"), "life")
    verifier.open(first)
    for _ in range(MAX_BROADCAST_NONCES - 1):
        verifier.open(signer.sign(Broadcast("prices"), "life"))
    assert (
        rejection(verifier, signer.sign(Broadcast("prices"), "life")) is RejectionReason.AGAIN
    )  # it cannot be recorded
    clock.now += REPLAY_WINDOW
    assert rejection(verifier, first) is RejectionReason.AGAIN
    clock.now += REPLAY_WINDOW + 1
    assert rejection(verifier, first) is RejectionReason.CLOCK
    assert verifier.open(signer.sign(Broadcast("prices"), "life")) == Broadcast("prices")


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
def test_a_body_that_is_no_ring_is_rejected_though_its_sender_has_the_secret(
    clock: ManualClock, verifier: Verifier, body: bytes
) -> None:
    from peerd.doorbell import datagram as module  # noqa: PLC0415

    mac = module._mac(module.derive_key(SECRET), body)
    assert len(mac) == MAC_SIZE
    assert rejection(verifier, HEADER + mac + body) in {RejectionReason.STRANGE, RejectionReason.CLOCK}
