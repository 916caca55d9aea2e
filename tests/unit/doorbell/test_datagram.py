from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from peerd.domain.ring import MAX_QUEUES, MAX_TASKS, Broadcast, ClaimRevoked, Ping, Ring, TasksAvailable, TaskScheduled
from peerd.doorbell import datagram as module
from peerd.doorbell.cluster_secret import read_secret, secret_path
from peerd.doorbell.datagram import HEADER, MAX_DATAGRAM_BYTES, REPLAY_WINDOW, RejectionReason, Signer, Verifier
from tests.support.manual_clock import ManualClock
from tests.support.rows import rows

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
    with pytest.raises(module.RingRejected) as error:
        verifier.open(datagram)
    return error.value.rejection_reason


RINGS: list[Ring] = [
    TasksAvailable(), TasksAvailable(("video", "mail")), TaskScheduled(within=1.5, at=1_700_000_000.25),
    ClaimRevoked((1, 2**62)), ClaimRevoked(tuple(range(10**6, 10**6 + MAX_TASKS))), Ping("word"),
    Broadcast("prices", {"apple": [1, None, "ä"]}),
]  # fmt: skip


@rows("ring", RINGS)
def test_a_signed_ring_is_accepted_once(signer: Signer, verifier: Verifier, ring: Ring) -> None:
    captured = signer.sign(ring, "life")
    assert verifier.open(captured) == ring
    assert rejection(verifier, captured) is RejectionReason.AGAIN
    with pytest.raises(ValueError, match="are allowed"):
        signer.sign(Broadcast("long", "x" * MAX_DATAGRAM_BYTES), "life")


def test_a_datagram_with_any_changed_byte_or_cut_at_any_length_is_rejected(signer: Signer, verifier: Verifier) -> None:
    datagram = signer.sign(TasksAvailable(("video",)), "life")
    for index in range(len(HEADER), len(datagram)):
        forged = bytearray(datagram)
        forged[index] ^= 1
        assert rejection(verifier, bytes(forged)) is RejectionReason.SECRET
    for length in range(len(datagram)):
        assert rejection(verifier, datagram[:length]) in {RejectionReason.STRANGE, RejectionReason.SECRET}


def test_what_is_not_for_this_node_now_is_rejected(signer: Signer, verifier: Verifier, clock: ManualClock) -> None:
    own = signer.sign(TasksAvailable(), "life")
    later_version = own[: len(module.MAGIC)] + bytes([own[len(module.MAGIC)] + 1]) + own[len(module.MAGIC) + 1 :]
    for datagram, seconds, reason in (
        (Signer("some other secret", clock).sign(TasksAvailable(), "life"), 0.0, RejectionReason.SECRET),
        (HEADER + b"x" * MAX_DATAGRAM_BYTES, 0.0, RejectionReason.STRANGE),
        (later_version, 0.0, RejectionReason.VERSION), (b"\x00" * 200, 0.0, RejectionReason.STRANGE),
        (b"", 0.0, RejectionReason.STRANGE),
        (signer.sign(TasksAvailable(), "another life"), 0.0, RejectionReason.ELSEWHERE),
        (own, -REPLAY_WINDOW - 1, RejectionReason.CLOCK), (own, REPLAY_WINDOW + 1, RejectionReason.CLOCK),
    ):  # fmt: skip
        clock.now += seconds
        assert rejection(verifier, datagram) is reason
        clock.now -= seconds
    notified = signer.sign(Broadcast("prices"), module.ALL_NODES_BUT + "life")
    direct = signer.sign(Broadcast("prices"), "life")
    here, there = (Verifier(SECRET, name, clock, accepts_broadcasts=True) for name in ("life", "another life"))
    assert rejection(here, notified) is RejectionReason.OURS
    assert there.open(module.decode_text(module.encode_text(notified))) == Broadcast("prices")
    assert rejection(there, notified) is RejectionReason.AGAIN
    assert rejection(there, direct) is RejectionReason.ELSEWHERE
    assert rejection(Verifier(SECRET, "another life", clock), notified) is RejectionReason.ELSEWHERE


def test_rings_are_forgotten_but_no_message_is_taken_twice(
    signer: Signer, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr("peerd.doorbell.datagram.MAX_RING_NONCES", 5)
    captured = [signer.sign(TasksAvailable(), "life") for _ in range(6)]
    for datagram in captured:
        verifier.open(datagram)
    assert rejection(verifier, captured[5]) is RejectionReason.AGAIN
    assert verifier.open(captured[0]) == TasksAvailable()
    first = signer.sign(Broadcast("prices"), "life")
    verifier.open(first)
    for _ in range(module.MAX_BROADCAST_NONCES - 1):
        verifier.open(signer.sign(Broadcast("prices"), "life"))
    one_more = rejection(verifier, signer.sign(Broadcast("prices"), "life"))
    assert one_more is RejectionReason.AGAIN, "it cannot be recorded"
    clock.now += REPLAY_WINDOW
    assert rejection(verifier, first) is RejectionReason.AGAIN
    clock.now += REPLAY_WINDOW + 1
    assert rejection(verifier, first) is RejectionReason.CLOCK
    assert verifier.open(signer.sign(Broadcast("prices"), "life")) == Broadcast("prices")


NO_RINGS = [
    None, {"type": "unknown"}, {"type": "work", "queues": ["no queue!"]},
    {"type": "work", "queues": ["q"] * (MAX_QUEUES + 1)}, {"type": "work", "queues": [], "more": 1},
    {"type": "taken", "tasks": list(range(MAX_TASKS + 1))}, {"type": "due", "within": "soon"},
]  # fmt: skip
BODIES = [b"", b"[]", b"{", b"\xff\xfe", b"[" * 1000, b'{"to":"life","at":1e999,"nonce":"n","ring":{"type":"work"}}']
FRAME = {"to": "life", "at": 1_700_000_000.0, "nonce": "n"}


@rows("body", [*BODIES, *(json.dumps(FRAME | {"ring": ring}).encode() for ring in NO_RINGS)])
def test_a_body_that_is_no_ring_is_rejected(clock: ManualClock, verifier: Verifier, body: bytes) -> None:
    mac = module._mac(module.derive_key(SECRET), body)
    assert len(mac) == module.MAC_SIZE
    assert rejection(verifier, HEADER + mac + body) in {RejectionReason.STRANGE, RejectionReason.CLOCK}


def test_beside_sqlite_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    server, nowhere = make_url("mysql://peerd@db/peerd"), make_url(f"sqlite:///{tmp_path / 'no' / 'peerd.sqlite'}")
    assert read_secret(server, "given") == "given"
    assert [read_secret(url, None, make=True) for url in (server, make_url("sqlite://"), nowhere)] == [None] * 3
    url = make_url(f"sqlite:///{tmp_path / 'peerd.sqlite'}")
    assert read_secret(url, None) is None
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: read_secret(url, None, make=True), range(32)))
    assert len(set(made)) == 1
    assert read_secret(url, None) == made[0]
    file = secret_path(url)
    assert file is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["peerd.sqlite.secret"]
