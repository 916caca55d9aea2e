"""Rings as datagrams: small, authenticated, for one life of one node, and of a moment.

    peerd | version | 16 bytes of BLAKE2b, keyed with the secret | JSON: to, at, nonce, ring

What comes from the network is hostile until its MAC was checked; before that only its length and its first bytes are
looked at. ``to`` is the incarnation of the node that it is for: rings of another cluster, or of an earlier life of the
node, open nothing. ``at``, by the database's clock, bounds how long a datagram can be replayed; for as long its nonce
is remembered. PostgreSQL's NOTIFY brings the same, as text (`encode_text`), for all nodes of its database
(`ALL_NODES`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from peerd.domain.ring import Broadcast, Ring

MAX_DATAGRAM_BYTES: Final = 1200
"""Bytes of a datagram: it passes every network in one piece."""
MAX_BROADCAST_JSON_BYTES: Final = 1000
"""Bytes of the JSON of a message to all nodes."""
MAGIC: Final = b"peerd"
VERSION: Final = 1
HEADER: Final = MAGIC + bytes([VERSION])
MAC_SIZE: Final = 16
REPLAY_WINDOW: Final = 120.0
"""Seconds that the clocks of two nodes may differ, and that a datagram can be replayed."""
MAX_BROADCAST_NONCES: Final = 10_000
"""Messages whose nonces are remembered; within the window no more are taken."""
MAX_RING_NONCES: Final = 20_000
"""Other rings whose nonces are remembered; of more the oldest are forgotten: to replay one costs a look."""
ALL_NODES: Final = "all nodes of the database"
ALL_NODES_BUT: Final = "all nodes of the database but "
"""Whom a notification is for; the incarnation of the node that sends it follows, which knows already."""
SIGNED_PREFIX: Final = "peerd1!"
"""Begins a notification that is signed; no queue's name has this mark in it."""


class RejectionReason(StrEnum):
    """Why a datagram was not listened to."""

    STRANGE = "it is no ring"
    VERSION = "it is of another version of peerd"
    SECRET = "it was made with another secret"  # noqa: S105 - a sentence
    CLOCK = "its clock and ours differ by more than two minutes, or it is an old one"
    ELSEWHERE = "it is for another node, or an earlier life of this one"
    AGAIN = "it has come before"
    OURS = "it is our own"
    UNSIGNED = "it is a message that is not signed: give all nodes and applications the same [cluster] secret"


class RingRejected(Exception):
    """A datagram that is not listened to.

    Args:
        rejection_reason: the reason.
        nonce: of one that says that it is for us and of now, where its secret is another, or that is for us and signed,
            where its clock is wrong: two of them mean that somebody rings whom nobody hears. None of any other.
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
    """Makes datagrams.

    Args:
        secret: of the cluster.
        clock: UNIX time, in seconds.
    """

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._key = derive_key(secret)
        self._clock = clock

    def sign(self, ring: Ring, to: str) -> bytes:
        """A datagram for one life of a node.

        Raises:
            ValueError: it would be too large.
        """
        signed = _SignedRing(to=to, at=self._clock(), nonce=secrets.token_hex(8), ring=ring)
        body = msgspec.json.encode(signed)
        datagram = HEADER + _mac(self._key, body) + body
        if len(datagram) > MAX_DATAGRAM_BYTES:
            raise ValueError(f"a datagram of {len(datagram)} bytes; {MAX_DATAGRAM_BYTES} are allowed")
        return datagram


class Verifier:
    """Opens datagrams that are for one life of a node.

    Args:
        secret: of the cluster.
        to: the incarnation.
        clock: UNIX time, in seconds.
        accepts_broadcasts: whether it opens notifications too.

    >>> now = lambda: 1_000_000.0
    >>> from peerd.domain.ring import TasksAvailable
    >>> datagram = Signer("sesame", now).sign(TasksAvailable(("video",)), to="life")
    >>> Verifier("sesame", "life", now).open(datagram)
    TasksAvailable(queues=('video',))
    >>> Verifier("simsim", "life", now).open(datagram)
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRejected: it was made with another secret
    """

    def __init__(self, secret: str, to: str, clock: Callable[[], float], *, accepts_broadcasts: bool = False) -> None:
        self._key = derive_key(secret)
        self._to = to
        self._accepts_broadcasts = accepts_broadcasts
        self._clock = clock
        self._messages = _SeenNonces()
        self._rings = _SeenNonces()

    def open(self, datagram: bytes) -> Ring:
        """The ring in a datagram.

        Raises:
            RingRejected: it is not to be listened to, with the reason.
        """
        if not len(HEADER) + MAC_SIZE < len(datagram) <= MAX_DATAGRAM_BYTES or not datagram.startswith(MAGIC):
            raise RingRejected(RejectionReason.STRANGE)
        if datagram[len(MAGIC)] != VERSION:
            raise RingRejected(RejectionReason.VERSION)
        body = datagram[len(HEADER) + MAC_SIZE :]
        if not hmac.compare_digest(datagram[len(HEADER) : len(HEADER) + MAC_SIZE], _mac(self._key, body)):
            raise RingRejected(RejectionReason.SECRET, self._nonce_if_addressed(body))
        try:
            signed = _DECODER.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RingRejected(RejectionReason.STRANGE) from None
        self._check(signed)
        return signed.ring

    def _nonce_if_addressed(self, unverified_body: bytes) -> str | None:
        """Of a body that nobody vouches for: its nonce, if it names us and the present time."""
        try:
            signed = _DECODER.decode(unverified_body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return signed.nonce if self._is_addressed_to_us(signed) and self._is_current(signed) else None

    def _is_addressed_to_us(self, signed: _SignedRing) -> bool:
        return signed.to == self._to or (self._accepts_broadcasts and signed.to.startswith(ALL_NODES))

    def _is_current(self, signed: _SignedRing) -> bool:
        return abs(signed.at - self._clock()) <= REPLAY_WINDOW

    def _check(self, signed: _SignedRing) -> None:
        if not self._is_addressed_to_us(signed):
            raise RingRejected(RejectionReason.ELSEWHERE)
        if signed.to == ALL_NODES_BUT + self._to:
            raise RingRejected(RejectionReason.OURS)
        if not self._is_current(signed):
            raise RingRejected(RejectionReason.CLOCK, signed.nonce)
        if isinstance(signed.ring, Broadcast):
            self._messages.add(signed.nonce, self._clock(), MAX_BROADCAST_NONCES, evicts=False)
        else:
            self._rings.add(signed.nonce, self._clock(), MAX_RING_NONCES, evicts=True)


class _SeenNonces:
    """Those that have come."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._ages: deque[tuple[float, str]] = deque()

    def add(self, nonce: str, now: float, most: int, *, evicts: bool) -> None:
        """Remember one for as long as it could be replayed.

        Args:
            nonce: of what is taken.
            now: in seconds.
            most: that are remembered.
            evicts: whether the oldest makes room for it, where there is none.

        Raises:
            RingRejected: it has come before, or there is no room to remember it.
        """
        while self._ages and (self._ages[0][0] < now - 2 * REPLAY_WINDOW or (evicts and len(self._ages) >= most)):
            self._known.discard(self._ages.popleft()[1])
        if nonce in self._known or len(self._known) >= most:
            raise RingRejected(RejectionReason.AGAIN)
        self._known.add(nonce)
        self._ages.append((now, nonce))


def encode_text(datagram: bytes) -> str:
    """A datagram as a notification carries it."""
    return SIGNED_PREFIX + base64.b64encode(datagram).decode()


def decode_text(payload: str) -> bytes:
    """A notification's datagram.

    Raises:
        RingRejected: it holds none.
    """
    try:
        return base64.b64decode(payload.removeprefix(SIGNED_PREFIX).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise RingRejected(RejectionReason.STRANGE) from None


def derive_key(secret: str) -> bytes:
    """The key that a secret makes, whatever its length."""
    return hashlib.blake2b(secret.encode(), person=b"peerd bell key").digest()


def _mac(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(HEADER + body, key=key, digest_size=MAC_SIZE, person=b"peerd bell").digest()
