"""Requests between nodes are accepted once, unchanged, and only of nodes that have the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.transfer.node_signature import (
    HEADER,
    MAX_OF_SECOND,
    WINDOW,
    NodeSignatureRefused,
    NodeSigner,
    NodeVerifier,
)

SECRET = "the secret of a cluster"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def verifier_at(clock: Clock, url: str = "http://a") -> NodeVerifier:
    return NodeVerifier(SECRET, clock, url)


@given(st.text(max_size=10), st.text(max_size=50), st.binary(max_size=50))
def test_a_signed_request_is_accepted_whatever_it_is_about(method: str, target: str, body: bytes) -> None:
    clock = Clock()
    headers = NodeSigner(SECRET, clock).headers(method, "http://a", target, {}, body)
    verifier_at(clock).verify(method, target, headers, body)


def test_a_request_that_was_changed_is_refused_and_garbage_is_no_signature() -> None:
    clock = Clock()
    named = {"X-Peerd-Blake3": "00", "content-type": "video/mp4", "accept": "*/*"}
    signed = NodeSigner(SECRET, clock).headers("PUT", "http://a", "/a", named, b"body")
    lower = {name.lower(): value for name, value in named.items()}
    received = {**lower, **signed}
    last = "0" if signed[HEADER][-1] != "0" else "1"
    other = NodeSigner("another secret", clock).headers("PUT", "http://a", "/a", named, b"body")
    for _, method, url, target, sent, body in (
        ("method", "DELETE", "http://a", "/a", received, b"body"),
        ("receiver", "PUT", "http://b", "/a", received, b"body"),
        ("target", "PUT", "http://a", "/b", received, b"body"),
        ("announced BLAKE3", "PUT", "http://a", "/a", {**received, "x-peerd-blake3": "11"}, b"body"),
        ("header more", "PUT", "http://a", "/a", {**received, "if-match": "x"}, b"body"),
        ("header less", "PUT", "http://a", "/a", signed, b"body"),
        ("body", "PUT", "http://a", "/a", received, b"others"),
        ("signature", "PUT", "http://a", "/a", {**received, HEADER: signed[HEADER][:-1] + last}, b"body"),
        ("secret", "PUT", "http://a", "/a", {**received, **other}, b"body"),
        ("none", "PUT", "http://a", "/a", lower, b"body"),
    ):
        with pytest.raises(NodeSignatureRefused, match=r"nodes need the same \[cluster\] secret"):
            verifier_at(clock, url).verify(method, target, sent, body)
    verifier_at(clock).verify("PUT", "/a", {**received, "accept": "text/html"}, b"body")
    for text in ("", "1", "1 1 1 1", f"2 1 {'0' * 32} {'0' * 64}", f"1 {'9' * 13} x y", "é"):
        with pytest.raises(NodeSignatureRefused, match="not signed"):
            verifier_at(Clock()).verify("GET", "/a", {HEADER: text})


def test_a_request_that_changes_something_is_accepted_once_and_none_after_its_time() -> None:
    clock = Clock()
    signer, verifier = NodeSigner(SECRET, clock), verifier_at(clock)
    first = signer.headers("PUT", "http://a", "/a", {})
    verifier.verify("PUT", "/a", first)
    with pytest.raises(NodeSignatureRefused, match="received before"):
        verifier.verify("PUT", "/a", first)
    for seconds in (-WINDOW - 2, WINDOW + 2):
        old = signer.headers("GET", "http://a", "/a", {})
        clock.time += seconds
        with pytest.raises(NodeSignatureRefused, match="too old, or from the future"):
            verifier.verify("GET", "/a", old)
        clock.time -= seconds
    clock.time += 2 * WINDOW + 1
    verifier.verify("PUT", "/a", signer.headers("PUT", "http://a", "/a", {}))
    assert sum(map(len, verifier._nonces.values())) == 1, "old nonces are forgotten"


def test_a_node_that_is_asked_more_often_than_nonces_are_kept_refuses_no_other_second() -> None:
    clock = Clock()
    signer, verifier = NodeSigner(SECRET, clock), verifier_at(clock)
    for _ in range(MAX_OF_SECOND):
        verifier.verify("PUT", "/a", signer.headers("PUT", "http://a", "/a", {}))
    one_more = signer.headers("PUT", "http://a", "/a", {})
    with pytest.raises(NodeSignatureRefused, match="too many"):
        verifier.verify("PUT", "/a", one_more)
    verifier.verify("GET", "/a", signer.headers("GET", "http://a", "/a", {}))
    clock.time += 1
    verifier.verify("PUT", "/a", signer.headers("PUT", "http://a", "/a", {}))
