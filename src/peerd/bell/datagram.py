"""Rings as datagrams: small, authenticated, for one life of one node, and of a moment.

    peerd | version | 16 bytes of BLAKE2b, keyed with the secret | JSON: to, at, nonce, ring

What comes from the network is hostile until its MAC was checked; before that only its length and its first bytes are
looked at. ``to`` is the incarnation of the node that it is for: rings of another cluster, or of an earlier life of the
node, open nothing. ``at`` bounds how long a datagram can be replayed; for rings that costs a look, and of messages the
nonces are remembered for as long.
"""

from __future__ import annotations

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


class Refused(StrEnum):
    """Why a datagram was not listened to."""

    STRANGE = "it is no ring"
    VERSION = "it is of another version of peerd"
    SECRET = "it was made with another secret"  # noqa: S105 - a sentence
    CLOCK = "its clock and ours differ by more than two minutes, or it is an old one"
    ELSEWHERE = "it is for another node, or an earlier life of this one"
    AGAIN = "it has come before"


class RingRefused(Exception):
    """A datagram that is not listened to."""

    def __init__(self, why: Refused) -> None:
        self.why = why
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

    >>> now = lambda: 1_000_000.0
    >>> from peerd.domain.ring import Work
    >>> datagram = Sealer("sesame", now).seal(Work(("video",)), to="life")
    >>> Opener("sesame", "life", now).open(datagram)
    Work(queues=('video',))
    >>> Opener("simsim", "life", now).open(datagram)
    Traceback (most recent call last):
    peerd.bell.datagram.RingRefused: it was made with another secret
    """

    def __init__(self, secret: str, to: str, clock: Callable[[], float]) -> None:
        self._key = key_of(secret)
        self._to = to
        self._clock = clock
        self._nonces: set[str] = set()
        self._ages: deque[tuple[float, str]] = deque()

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
            raise RingRefused(Refused.SECRET)
        try:
            letter = _DECODER.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RingRefused(Refused.STRANGE) from None
        self._check(letter)
        return letter.ring

    def _check(self, letter: _Letter) -> None:
        if letter.to != self._to:
            raise RingRefused(Refused.ELSEWHERE)
        if not abs(letter.at - self._clock()) <= WINDOW:
            raise RingRefused(Refused.CLOCK)
        if isinstance(letter.ring, Told):
            self._remember(letter)

    def _remember(self, letter: _Letter) -> None:
        """A message is handed over at most once."""
        while self._ages and self._ages[0][0] < self._clock() - 2 * WINDOW:
            self._nonces.discard(self._ages.popleft()[1])
        if letter.nonce in self._nonces or len(self._nonces) >= REMEMBERED:
            raise RingRefused(Refused.AGAIN)
        self._nonces.add(letter.nonce)
        self._ages.append((self._clock(), letter.nonce))


def key_of(secret: str) -> bytes:
    """The key that a secret makes, whatever its length."""
    return hashlib.blake2b(secret.encode(), person=b"peerd bell key").digest()


def _mac(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(HEAD + body, key=key, digest_size=MAC_SIZE, person=b"peerd bell").digest()
