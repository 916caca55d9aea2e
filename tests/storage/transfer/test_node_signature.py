"""Requests between nodes are accepted once, unchanged, and only of nodes that have the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.transfer.node_signature import HEADER, WINDOW, NodeSignatureRefused, NodeSigner, NodeVerifier

SECRET = "the secret of a cluster"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@given(st.text(max_size=10), st.text(max_size=50), st.binary(max_size=50))
def test_a_signed_request_is_accepted_whatever_it_is_about(method: str, target: str, body: bytes) -> None:
    clock = Clock()
    headers = NodeSigner(SECRET, clock).headers(method, target, body)
    NodeVerifier(SECRET, clock).verify(method, target, headers, body)


def test_a_request_that_was_changed_is_refused_and_garbage_is_no_signature() -> None:
    clock = Clock()
    headers = NodeSigner(SECRET, clock).headers("GET", "/a", b"body")
    last = "0" if headers[HEADER][-1] != "0" else "1"
    for method, target, sent, body in (
        ("PUT", "/a", headers, b"body"),
        ("GET", "/b", headers, b"body"),
        ("GET", "/a", headers, b"others"),
        ("GET", "/a", {HEADER: headers[HEADER][:-1] + last}, b"body"),
        ("GET", "/a", NodeSigner("another secret", clock).headers("GET", "/a", b"body"), b"body"),
        ("GET", "/a", {}, b"body"),
    ):
        with pytest.raises(NodeSignatureRefused, match=r"nodes need the same \[cluster\] secret"):
            NodeVerifier(SECRET, clock).verify(method, target, sent, body)
    for text in ("", "1", "1 1 1 1", f"2 1 {'0' * 32} {'0' * 64}", f"1 {'9' * 13} x y", "é"):
        with pytest.raises(NodeSignatureRefused, match="not signed"):
            NodeVerifier(SECRET, Clock()).verify("GET", "/a", {HEADER: text})


def test_a_request_is_accepted_once_and_not_after_its_time() -> None:
    clock = Clock()
    signer, verifier = NodeSigner(SECRET, clock), NodeVerifier(SECRET, clock)
    first = signer.headers("GET", "/a")
    verifier.verify("GET", "/a", first)
    with pytest.raises(NodeSignatureRefused, match="received before"):
        verifier.verify("GET", "/a", first)
    for seconds in (-WINDOW - 2, WINDOW + 2):
        old = signer.headers("GET", "/a")
        clock.time += seconds
        with pytest.raises(NodeSignatureRefused, match="too old, or from the future"):
            verifier.verify("GET", "/a", old)
        clock.time -= seconds
    clock.time += 2 * WINDOW + 1
    verifier.verify("GET", "/a", signer.headers("GET", "/a"))
    assert len(verifier._nonces) == 1, "old nonces are forgotten"
