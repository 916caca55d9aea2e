"""How nodes of a cluster prove to each other that a request is theirs.

HMAC-SHA256 with a key derived from the cluster's secret, over the method, the target, the hash of the body, the time
and a nonce. Refused is a request that was made without the secret, was changed, is old, or was received before.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from peerd.domain.errors import PeerdError

HEADER: Final = "peerd-signature"
WINDOW: Final = 120.0
"""Seconds that the clocks of two nodes may differ, and that a request can be replayed if its nonce were not known."""
MAX_NONCES: Final = 200_000
_CONTEXT: Final = b"peerd storage 1"
_FORM: Final = re.compile(r"1 (\d{1,12}) ([0-9a-f]{32}) ([0-9a-f]{64})", re.ASCII)


class NodeSignatureRefused(PeerdError, PermissionError):
    """A request is not of a node of this cluster."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; nodes need the same [cluster] secret, and clocks that agree within two minutes")


class NodeSigner:
    """Signs requests.

    Args:
        secret: of the cluster.
        clock: UNIX time, in seconds.
    """

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._key = _derive_key(secret)
        self._clock = clock

    def headers(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """The headers that prove a request.

        Args:
            method: such as GET.
            target: path and query, as they are sent.
            body: all of it.
        """
        time, nonce = str(int(self._clock())), secrets.token_hex(16)
        return {HEADER: f"1 {time} {nonce} {_mac(self._key, method, target, body, time, nonce)}"}


class NodeVerifier:
    """Verifies requests.

    Args:
        secret: of the cluster.
        clock: UNIX time, in seconds.

    >>> signer, verifier = NodeSigner("the secret of a cluster", lambda: 9.0), NodeVerifier("another", lambda: 9.0)
    >>> verifier.verify("GET", "/contents/1", signer.headers("GET", "/contents/1"))
    Traceback (most recent call last):
    peerd.storage.transfer.node_signature.NodeSignatureRefused: the signature is wrong; nodes need the same \
[cluster] secret, and clocks that agree within two minutes
    """

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._key = _derive_key(secret)
        self._clock = clock
        self._nonces: set[str] = set()
        self._ages: deque[tuple[float, str]] = deque()

    def verify(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Accept a request once.

        Args:
            method: as it was received.
            target: path and query, as they were received.
            headers: with names in lower case.
            body: all of it.

        Raises:
            NodeSignatureRefused: it is not of a node of this cluster, was changed, is old, or was received before.
        """
        found = _FORM.fullmatch(headers.get(HEADER, ""))
        if found is None:
            raise NodeSignatureRefused("the request is not signed")
        time, nonce, mac = found.groups()
        if not hmac.compare_digest(mac, _mac(self._key, method, target, body, time, nonce)):
            raise NodeSignatureRefused("the signature is wrong")
        present = self._clock()
        if abs(present - int(time)) > WINDOW:
            raise NodeSignatureRefused("the request is too old, or from the future")
        self._remember(nonce, present)

    def _remember(self, nonce: str, present: float) -> None:
        while self._ages and self._ages[0][0] < present - 2 * WINDOW:
            self._nonces.discard(self._ages.popleft()[1])
        if nonce in self._nonces or len(self._nonces) >= MAX_NONCES:
            raise NodeSignatureRefused("the request was received before, or too many were")
        self._nonces.add(nonce)
        self._ages.append((present, nonce))


def _derive_key(secret: str) -> bytes:
    return hmac.digest(secret.encode(), _CONTEXT, "sha256")


def _mac(key: bytes, method: str, target: str, body: bytes, time: str, nonce: str) -> str:
    signed = "\n".join((method, target, hashlib.sha256(body).hexdigest(), time, nonce))
    return hmac.digest(key, signed.encode(), "sha256").hex()
