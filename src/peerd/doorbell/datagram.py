"""Rings as datagrams: small, authenticated, for one life of one node, and of a moment.

    peerd | version | 16 bytes of BLAKE2b, keyed with the secret | JSON: to, at, nonce, ring

What comes from the network is hostile until its MAC was checked; before that only its length and its first bytes are
looked at. ``to`` is the incarnation of the node that it is for: rings of another cluster, or of an earlier life of the
node, open nothing. ``at``, by the database's clock, bounds how long a datagram can be replayed; for as long its nonce
is remembered. PostgreSQL's NOTIFY brings the same, as text (`as_text`), for all nodes of its database (`ALL`).
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

from peerd.domain.ring import Ring, Told

LARGEST: Final = 1200
"""Bytes of a datagram: it passes every network in one piece."""
LARGEST_MESSAGE: Final = 1000
"""Bytes of the JSON of a message to all nodes."""
MAGIC: Final = b"peerd"
VERSION: Final = 1
HEAD: Final = MAGIC + bytes([VERSION])
MAC_SIZE: Final = 16
WINDOW: Final = 120.0
"""Seconds that the clocks of two nodes may differ, and that a datagram can be replayed."""
REMEMBERED: Final = 10_000
"""Messages whose nonces are remembered; within the window no more are taken."""
RINGS_REMEMBERED: Final = 20_000
"""Other rings whose nonces are remembered; of more the oldest are forgotten: to replay one costs a look."""
ALL: Final = "all nodes of the database"
ALL_BUT: Final = "all nodes of the database but "
"""Whom a notification is for; the incarnation of the node that sends it follows, which knows already."""
SIGNED: Final = "peerd1!"
"""Begins a notification that is signed; no queue's name has this mark in it."""


class Refused(StrEnum):
    """Why a datagram was not listened to."""

    STRANGE = "it is no ring"
    VERSION = "it is of another version of peerd"
    SECRET = "it was made with another secret"  # noqa: S105 - a sentence
    CLOCK = "its clock and ours differ by more than two minutes, or it is an old one"
    ELSEWHERE = "it is for another node, or an earlier life of this one"
    AGAIN = "it has come before"
    OURS = "it is our own"
    UNSIGNED = "it is a message that is not signed: give all nodes and applications the same [cluster] secret"


class RingRefused(Exception):
    """A datagram that is not listened to.

    Args:
        why: the reason.
        nonce: of one that says that it is for us and of now, where its secret is another, or that is for us and signed,
            where its clock is wrong: two of them mean that somebody rings whom nobody hears. None of any other.
    """

    def __init__(self, why: Refused, nonce: str | None = None) -> None:
        self.why = why
        self.nonce = nonce
        super().__init__(str(why))


class _Letter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: str
    at: float
    nonce: str
    ring: Ring


_DECODER: Final = msgspec.json.Decoder(_Letter)


class Sealer:
    """Makes datagrams.

    Args:
        secret: of the cluster.
        clock: UNIX time, in seconds.
    """

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._key = key_of(secret)
        self._clock = clock

    def seal(self, ring: Ring, to: str) -> bytes:
        """A datagram for one life of a node.

        Raises:
            ValueError: it would be too large.
        """
        letter = _Letter(to=to, at=self._clock(), nonce=secrets.token_hex(8), ring=ring)
        body = msgspec.json.encode(letter)
        datagram = HEAD + _mac(self._key, body) + body
        if len(datagram) > LARGEST:
            raise ValueError(f"a datagram of {len(datagram)} bytes; {LARGEST} are allowed")
        return datagram


class Opener:
    """Opens datagrams that are for one life of a node.

    Args:
        secret: of the cluster.
        to: the incarnation.
        clock: UNIX time, in seconds.
        opens_those_for_all: whether it opens notifications too.

    >>> now = lambda: 1_000_000.0
    >>> from peerd.domain.ring import Work
    >>> datagram = Sealer("sesame", now).seal(Work(("video",)), to="life")
    >>> Opener("sesame", "life", now).open(datagram)
    Work(queues=('video',))
    >>> Opener("simsim", "life", now).open(datagram)
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRefused: it was made with another secret
    """

    def __init__(self, secret: str, to: str, clock: Callable[[], float], *, opens_those_for_all: bool = False) -> None:
        self._key = key_of(secret)
        self._to = to
        self._opens_those_for_all = opens_those_for_all
        self._clock = clock
        self._messages = _Nonces()
        self._rings = _Nonces()

    def open(self, datagram: bytes) -> Ring:
        """The ring in a datagram.

        Raises:
            RingRefused: it is not to be listened to, with the reason.
        """
        if not len(HEAD) + MAC_SIZE < len(datagram) <= LARGEST or not datagram.startswith(MAGIC):
            raise RingRefused(Refused.STRANGE)
        if datagram[len(MAGIC)] != VERSION:
            raise RingRefused(Refused.VERSION)
        body = datagram[len(HEAD) + MAC_SIZE :]
        if not hmac.compare_digest(datagram[len(HEAD) : len(HEAD) + MAC_SIZE], _mac(self._key, body)):
            raise RingRefused(Refused.SECRET, self._nonce_for_us(body))
        try:
            letter = _DECODER.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RingRefused(Refused.STRANGE) from None
        self._check(letter)
        return letter.ring

    def _nonce_for_us(self, forged: bytes) -> str | None:
        """Of a body that nobody vouches for: its nonce, if it names us and the present time."""
        try:
            letter = _DECODER.decode(forged)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return letter.nonce if self._is_for_us(letter) and self._is_of_now(letter) else None

    def _is_for_us(self, letter: _Letter) -> bool:
        return letter.to == self._to or (self._opens_those_for_all and letter.to.startswith(ALL))

    def _is_of_now(self, letter: _Letter) -> bool:
        return abs(letter.at - self._clock()) <= WINDOW

    def _check(self, letter: _Letter) -> None:
        if not self._is_for_us(letter):
            raise RingRefused(Refused.ELSEWHERE)
        if letter.to == ALL_BUT + self._to:
            raise RingRefused(Refused.OURS)
        if not self._is_of_now(letter):
            raise RingRefused(Refused.CLOCK, letter.nonce)
        if isinstance(letter.ring, Told):
            self._messages.remember(letter.nonce, self._clock(), REMEMBERED, forgets=False)
        else:
            self._rings.remember(letter.nonce, self._clock(), RINGS_REMEMBERED, forgets=True)


class _Nonces:
    """Those that have come."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._ages: deque[tuple[float, str]] = deque()

    def remember(self, nonce: str, now: float, most: int, *, forgets: bool) -> None:
        """Remember one for as long as it could be replayed.

        Args:
            nonce: of what is taken.
            now: in seconds.
            most: that are remembered.
            forgets: whether the oldest makes room for it, where there is none.

        Raises:
            RingRefused: it has come before, or there is no room to remember it.
        """
        while self._ages and (self._ages[0][0] < now - 2 * WINDOW or (forgets and len(self._ages) >= most)):
            self._known.discard(self._ages.popleft()[1])
        if nonce in self._known or len(self._known) >= most:
            raise RingRefused(Refused.AGAIN)
        self._known.add(nonce)
        self._ages.append((now, nonce))


def as_text(datagram: bytes) -> str:
    """A datagram as a notification carries it."""
    return SIGNED + base64.b64encode(datagram).decode()


def from_text(payload: str) -> bytes:
    """A notification's datagram.

    Raises:
        RingRefused: it holds none.
    """
    try:
        return base64.b64decode(payload.removeprefix(SIGNED).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise RingRefused(Refused.STRANGE) from None


def key_of(secret: str) -> bytes:
    """The key that a secret makes, whatever its length."""
    return hashlib.blake2b(secret.encode(), person=b"peerd bell key").digest()


def _mac(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(HEAD + body, key=key, digest_size=MAC_SIZE, person=b"peerd bell").digest()
