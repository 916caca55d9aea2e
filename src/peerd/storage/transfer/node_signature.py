"""How nodes of a cluster prove to each other that a request is theirs.

HMAC-SHA256 with a key derived from the cluster's secret, over the method, the address of the receiver, the target, the
headers that change what is done (an announced BLAKE3 is one), the hash of a body that is in memory, the time, a nonce.
Refused is a request that was made without the secret, for another node, was changed, is old, or changes something and
was received before.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from peerd.domain.errors import PeerdError

HEADER: Final = "peerd-signature"
WINDOW: Final = 120.0
"""Seconds that the clocks of two nodes may differ, and that a request can be replayed if its nonce were not known."""
MAX_OF_SECOND: Final = 20_000
"""Nonces that are kept of requests made in one second: many times what a process serves."""
READING: Final = {"GET", "HEAD"}
_SIGNED_HEADERS: Final = re.compile(r"x-peerd-.*|content-type|range|if-match|if-none-match", re.ASCII)
_CONTEXT: Final = b"peerd storage 2"
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

    def headers(
        self, method: str, url: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> dict[str, str]:
        """The headers that prove a request.

        Args:
            method: such as GET.
            url: of the receiver, as the catalogue has it.
            target: path and query, as they are sent.
            headers: that are sent too.
            body: all of it, if it is in memory.
        """
        time, nonce = str(int(self._clock())), secrets.token_hex(16)
        return {HEADER: f"1 {time} {nonce} {_mac(self._key, method, url, target, headers, body, time, nonce)}"}


class NodeVerifier:
    """Verifies requests.

    Args:
        secret: of the cluster.
        clock: UNIX time, in seconds.
        url: of this node, as the catalogue has it.

    >>> signer, url = NodeSigner("the secret of a cluster", lambda: 9.0), "http://a:7480"
    >>> headers = signer.headers("GET", url, "/contents/1", {})
    >>> NodeVerifier("another", lambda: 9.0, url).verify("GET", "/contents/1", headers)
    Traceback (most recent call last):
    peerd.storage.transfer.node_signature.NodeSignatureRefused: the signature is wrong; nodes need the same \
[cluster] secret, and clocks that agree within two minutes
    """

    def __init__(self, secret: str, clock: Callable[[], float], url: str) -> None:
        self._key = _derive_key(secret)
        self._clock = clock
        self.url = url
        self._nonces: dict[int, set[str]] = {}
        """By the second in which their requests were made."""

    def verify(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"", *, is_reading: bool = False
    ) -> None:
        """Accept a request; one that changes something once.

        Args:
            method: as it was received.
            target: path and query, as they were received.
            headers: with names in lower case.
            body: all of it, if it was in the sender's memory.
            is_reading: whether it changes nothing, although its method could; no nonces are kept of such requests.

        Raises:
            NodeSignatureRefused: it is not of a node of this cluster, is for another one, was changed, is old, or was
                received before.
        """
        found = _FORM.fullmatch(headers.get(HEADER, ""))
        if found is None:
            raise NodeSignatureRefused("the request is not signed")
        time, nonce, mac = found.groups()
        if not hmac.compare_digest(mac, _mac(self._key, method, self.url, target, headers, body, time, nonce)):
            raise NodeSignatureRefused("the signature is wrong")
        present = self._clock()
        if abs(present - int(time)) > WINDOW:
            raise NodeSignatureRefused("the request is too old, or from the future")
        if not is_reading and method not in READING:
            self._remember(int(time), nonce, present)

    def _remember(self, second: int, nonce: str, present: float) -> None:
        if second not in self._nonces:
            self._nonces = {one: nonces for one, nonces in self._nonces.items() if one >= present - WINDOW - 1}
        nonces = self._nonces.setdefault(second, set())
        if nonce in nonces or len(nonces) >= MAX_OF_SECOND:
            raise NodeSignatureRefused("the request was received before, or too many were")
        nonces.add(nonce)


def _derive_key(secret: str) -> bytes:
    return hmac.digest(secret.encode(), _CONTEXT, "sha256")


def _mac(
    key: bytes, method: str, url: str, target: str, headers: Mapping[str, str], body: bytes, time: str, nonce: str
) -> str:
    named = sorted((name.lower(), value.strip()) for name, value in headers.items())
    signed_headers = [f"{name}:{value}" for name, value in named if _SIGNED_HEADERS.fullmatch(name)]
    digest = hashlib.sha256(body).hexdigest()
    signed = "\n".join((method, url, target, *signed_headers, digest, time, nonce))
    return hmac.digest(key, signed.encode(), "sha256").hex()
