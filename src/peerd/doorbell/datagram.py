"""The wire format of rings: small, authenticated, for one incarnation of one node, and of limited age.

    peerd | version | 16 bytes of BLAKE2b, keyed with the secret | JSON: to, at, nonce, ring

Until its MAC has been verified, a datagram is hostile, and only its length and first bytes are read. ``to`` is the
incarnation of the addressed node: a ring of another cluster, or for an earlier incarnation, is rejected. ``at``, by the
database's clock, limits how long a datagram can be replayed; for as long its nonce is remembered. A notification of
PostgreSQL carries the same in base64, for all nodes of its database (`ALL_NODES`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from peerd.domain.ring import Broadcast, Ring, TasksAvailable

CHANNEL: Final = "peerd"  # of PostgreSQL's NOTIFY
MAX_DATAGRAM_BYTES: Final = 1200
"""Bytes of a datagram: every network carries it in one piece."""
MAGIC: Final = b"peerd"
VERSION: Final = 1
HEADER: Final = MAGIC + bytes([VERSION])
MAC_SIZE: Final = 16
REPLAY_WINDOW: Final = 120.0
"""Seconds that the clocks of two nodes may differ, and that a datagram can be replayed."""
MAX_BROADCAST_NONCES: Final = 10_000
"""Broadcasts whose nonces are remembered; further ones are rejected until the oldest has expired."""
MAX_RING_NONCES: Final = 20_000
"""Other rings whose nonces are remembered; then the oldest are forgotten, for a replay costs only one query."""
ALL_NODES: Final = "all nodes of the database"
ALL_NODES_BUT: Final = "all nodes of the database but "
"""Recipients of a notification; the incarnation of the sending node follows, which has the ring already."""
SIGNED_PREFIX: Final = "peerd1!"
"""Beginning of a signed notification; no queue's name contains the mark."""


class RejectionReason(StrEnum):
    """Why a ring was rejected."""

    STRANGE = "it is not a ring"
    VERSION = "it is of another version of peerd"
    SECRET = "it was made with another secret"  # noqa: S105 - a sentence
    CLOCK = "its time differs from the database's by more than two minutes"
    ELSEWHERE = "it is for another node, or for an earlier incarnation of this one"
    AGAIN = "it was received before"
    OURS = "it was sent by this node"
    UNSIGNED = "it is an unsigned message: give all nodes and applications the same [cluster] secret"


class RingRejected(Exception):
    """A ring that is ignored.

    Args:
        rejection_reason: the reason.
        nonce: of a ring that names this incarnation, where its secret is wrong and its time right, or its time is
            wrong and its signature right; None of any other. Two different nonces mean that a sender which belongs to
            the cluster is rejected.
    """

    def __init__(self, rejection_reason: RejectionReason, nonce: str | None = None) -> None:
        self.rejection_reason = rejection_reason
        self.nonce = nonce
        super().__init__(str(rejection_reason))


class _SignedRing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: str
    at: float
    nonce: str
    ring: Ring


_DECODER: Final = msgspec.json.Decoder(_SignedRing)


class Signer:
    """Makes datagrams, signed with the cluster's secret and the UNIX time that `clock` gives."""

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._key = derive_key(secret)
        self._clock = clock

    def sign(self, ring: Ring, to: str) -> bytes:
        """A datagram for one incarnation of a node.

        Raises:
            ValueError: it would be too large.
        """
        signed = _SignedRing(to=to, at=self._clock(), nonce=secrets.token_hex(8), ring=ring)
        body = msgspec.json.encode(signed)
        datagram = HEADER + _mac(self._key, body) + body
        if len(datagram) > MAX_DATAGRAM_BYTES:
            raise ValueError(f"a datagram of {len(datagram)} bytes; {MAX_DATAGRAM_BYTES} are allowed")
        return datagram


@dataclass(eq=False)
class Verifier:
    """Opens the datagrams for one incarnation of a node.

    Args:
        accepts_broadcasts: whether it opens notifications for all nodes too.

    >>> now = lambda: 1_000_000.0
    >>> datagram = Signer("sesame", now).sign(TasksAvailable(("video",)), to="life")
    >>> Verifier("sesame", "life", now).open(datagram)
    TasksAvailable(queues=('video',))
    >>> Verifier("simsim", "life", now).open(datagram)
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRejected: it was made with another secret
    """

    secret: str
    to: str
    clock: Callable[[], float]
    accepts_broadcasts: bool = False

    def __post_init__(self) -> None:
        self._key = derive_key(self.secret)
        self._broadcast_nonces = _SeenNonces()
        self._ring_nonces = _SeenNonces()

    def open(self, datagram: bytes) -> Ring:
        """The ring in a datagram.

        Raises:
            RingRejected: it must be ignored, with the reason.
        """
        if not len(HEADER) + MAC_SIZE < len(datagram) <= MAX_DATAGRAM_BYTES or not datagram.startswith(MAGIC):
            raise RingRejected(RejectionReason.STRANGE)
        if datagram[len(MAGIC)] != VERSION:
            raise RingRejected(RejectionReason.VERSION)
        body = datagram[len(HEADER) + MAC_SIZE :]
        if not hmac.compare_digest(datagram[len(HEADER) : len(HEADER) + MAC_SIZE], _mac(self._key, body)):
            raise RingRejected(RejectionReason.SECRET, self._nonce_if_addressed(body))
        signed = _decode(body)
        self._check(signed)
        return signed.ring

    def _nonce_if_addressed(self, unverified_body: bytes) -> str | None:
        """The nonce of an unverified body, if it names this incarnation and the present time."""
        try:
            signed = _decode(unverified_body)
        except RingRejected:
            return None
        return signed.nonce if self._is_addressed_to_us(signed) and self._is_current(signed) else None

    def _is_addressed_to_us(self, signed: _SignedRing) -> bool:
        return signed.to == self.to or (self.accepts_broadcasts and signed.to.startswith(ALL_NODES))

    def _is_current(self, signed: _SignedRing) -> bool:
        return abs(signed.at - self.clock()) <= REPLAY_WINDOW

    def _check(self, signed: _SignedRing) -> None:
        if not self._is_addressed_to_us(signed):
            raise RingRejected(RejectionReason.ELSEWHERE)
        if signed.to == ALL_NODES_BUT + self.to:
            raise RingRejected(RejectionReason.OURS)
        if not self._is_current(signed):
            raise RingRejected(RejectionReason.CLOCK, signed.nonce)
        if isinstance(signed.ring, Broadcast):
            self._broadcast_nonces.add(signed.nonce, self.clock(), MAX_BROADCAST_NONCES, evicts=False)
        else:
            self._ring_nonces.add(signed.nonce, self.clock(), MAX_RING_NONCES, evicts=True)


class NotificationVerifier:
    """Opens PostgreSQL's notifications.

    Args:
        secret: of the cluster; without one no signature can be verified, so broadcasts are rejected.
        clock: UNIX time, in seconds.
        incarnation: of this node, whose own notifications are rejected.

    >>> verifier = NotificationVerifier(None, lambda: 0.0, "life")
    >>> verifier.open("video, mail"), verifier.open(""), verifier.open('{"type":"due","within":1.0}')
    (TasksAvailable(queues=('video', 'mail')), TasksAvailable(queues=()), TaskScheduled(within=1.0, at=None))
    >>> verifier.open('{"type":"broadcast","action":"prices"}')
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRejected: it is an unsigned message: give all nodes and applications the same \
[cluster] secret
    """

    def __init__(self, secret: str | None, clock: Callable[[], float], incarnation: str) -> None:
        self._verifier = None if secret is None else Verifier(secret, incarnation, clock, accepts_broadcasts=True)

    @property
    def has_secret(self) -> bool:
        """Whether it can verify signatures."""
        return self._verifier is not None

    def is_signed(self, payload: str) -> bool:
        """Whether the payload claims a signature that can be verified."""
        return self.has_secret and payload.startswith(SIGNED_PREFIX)

    def open(self, payload: str) -> Ring:
        """The ring of a notification: a signed one; or a hint, in JSON or as names of queues with commas.

        Raises:
            RingRejected: it must be ignored, with the reason.
        """
        if not payload.startswith(SIGNED_PREFIX):
            return _parse_hint(payload)
        if self._verifier is None:
            return TasksAvailable()  # of a sender with a secret: at least a hint
        return self._verifier.open(decode_text(payload))


def _parse_hint(payload: str) -> Ring:
    """An unsigned ring, which any role that may connect to the database can send."""
    try:
        if payload.startswith("{"):
            ring: Ring = msgspec.json.decode(payload, type=Ring)
        else:
            ring = TasksAvailable(tuple(name.strip() for name in payload.split(",") if name.strip()))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RingRejected(RejectionReason.STRANGE) from None
    if isinstance(ring, Broadcast):
        raise RingRejected(RejectionReason.UNSIGNED)
    return ring


class _SeenNonces:
    def __init__(self) -> None:
        self._known: set[str] = set()
        self._ages: deque[tuple[float, str]] = deque()

    def add(self, nonce: str, now: float, limit: int, *, evicts: bool) -> None:
        """Remember a nonce for as long as it could be replayed; at the limit it replaces the oldest, or is rejected."""
        while self._ages and (self._ages[0][0] < now - 2 * REPLAY_WINDOW or (evicts and len(self._ages) >= limit)):
            self._known.discard(self._ages.popleft()[1])
        if nonce in self._known or len(self._known) >= limit:
            raise RingRejected(RejectionReason.AGAIN)
        self._known.add(nonce)
        self._ages.append((now, nonce))


def encode_text(datagram: bytes) -> str:
    """A datagram as a notification carries it."""
    return SIGNED_PREFIX + base64.b64encode(datagram).decode()


def decode_text(payload: str) -> bytes:
    """The datagram in a notification.

    Raises:
        RingRejected: there is none.
    """
    try:
        return base64.b64decode(payload.removeprefix(SIGNED_PREFIX).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise RingRejected(RejectionReason.STRANGE) from None


def derive_key(secret: str) -> bytes:
    """A key of fixed length from a secret of any length."""
    return hashlib.blake2b(secret.encode(), person=b"peerd ring key").digest()


def _decode(body: bytes) -> _SignedRing:
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RingRejected(RejectionReason.STRANGE) from None


def _mac(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(HEADER + body, key=key, digest_size=MAC_SIZE, person=b"peerd ring").digest()


# ---------------------------------------------------------------- the time of signatures


def _since_boot() -> float:
    """A clock that is never set, and that runs while the machine sleeps, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ClusterClock:
    """UNIX time by the database's clock as it was last read; by the machine's own clock until then.

    >>> from datetime import UTC
    >>> seconds = 50.0
    >>> clock = ClusterClock(lambda: seconds)
    >>> asked_at = clock.steady()
    >>> seconds = 52.0
    >>> clock.synchronize(datetime.fromtimestamp(7_000, UTC), asked_at)
    >>> seconds = 60.0
    >>> clock()
    7009.0
    """

    def __init__(self, steady: Callable[[], float] = _since_boot) -> None:
        self.steady = steady
        self._offset: float | None = None

    def __call__(self) -> float:
        return time.time() if self._offset is None else self.steady() + self._offset

    @property
    def is_known(self) -> bool:
        return self._offset is not None

    def synchronize(self, now: datetime, asked_at: float) -> None:
        """Take over the database's time.

        Args:
            now: the database's answer.
            asked_at: when it was asked, by `steady`; its clock is assumed to have been read halfway until now.
        """
        self._offset = now.timestamp() - (asked_at + self.steady()) / 2
