"""Signatures that botocore makes are verified, and no byte of what they cover can be changed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import pytest
from botocore.auth import HmacV1Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.storage.s3.errors import (
    S3AccessDenied,
    S3AuthorizationHeaderMalformed,
    S3AuthorizationQueryParametersError,
    S3Error,
    S3InvalidAccessKeyId,
    S3InvalidArgument,
    S3InvalidRequest,
    S3InvalidToken,
    S3MissingSecurityHeader,
    S3NotImplemented,
    S3RequestTimeTooSkewed,
    S3SignatureDoesNotMatch,
)
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm, SignatureVerifier
from tests.storage.s3.signed_requests import KEY, NOW, SECRET, request_of, signed_by_botocore, verifier

KEYS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60) | st.text(
    st.sampled_from("a/.+% ~äß€😀?#&=;:@!$'()*,[]\\\"<>^`{|}-_"), min_size=1, max_size=60
)
METHODS: Final = st.sampled_from(["GET", "PUT", "HEAD", "POST", "DELETE"])
NAMES: Final = st.sampled_from(["prefix", "a", "a-b", "A", "ä", "x y"]) | KEYS
PARAMETERS: Final = st.lists(st.tuples(NAMES, KEYS | st.just("")), max_size=5)
VALUES: Final = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)
HEADERS: Final = st.dictionaries(
    st.sampled_from(["x-amz-meta-a", "X-Amz-Meta-B", "Content-Type", "Range", "If-Match", "x-amz-acl"]),
    VALUES,
    max_size=4,
)


def verifies(request: S3HttpRequest, now: datetime = NOW) -> bool:
    try:
        verifier().verify(request, now)
    except S3Error:
        return False
    return True


def changed(request: S3HttpRequest, **parts: Any) -> S3HttpRequest:
    """A request with other parts; what was signed stays."""
    other = S3HttpRequest(parts.get("method", request.method), b"/", b"", parts.get("headers", request.headers))
    other.path = parts.get("path", request.path)
    other.parameters = parts.get("parameters", request.parameters)
    return other


def with_header(request: S3HttpRequest, name: bytes, value: bytes | None) -> S3HttpRequest:
    rest = [(known, old) for known, old in request.headers if known != name]
    return changed(request, headers=rest if value is None else [*rest, (name, value)])


@given(METHODS, KEYS, PARAMETERS, HEADERS, st.binary(max_size=50), st.none() | st.integers(1, 604800))
@example("GET", "//a/../b/./c d+e%20%2F", [("a", "2"), ("a", "1"), ("a-b", ""), ("prefix", "+ %")], {}, b"", None)
@example("GET", "//a/../b/./c d+e%20%2F", [("a", "2"), ("a", "1"), ("a-b", ""), ("prefix", "+ %")], {}, b"", 5)
@example("PUT", "a", [], {"x-amz-meta-a": "  two   spaces  "}, b"x", None)
def test_what_botocore_signs_is_verified(
    method: str, key: str, parameters: list[tuple[str, str]], headers: dict[str, str], body: bytes, expires: int | None
) -> None:
    request = signed_by_botocore(
        method,
        f"/films/{key}",
        parameters=parameters,
        headers=[*headers.items()],
        body=body if expires is None else b"",
        expires=expires,
    )
    verified = verifier().verify(request, NOW)
    assert (verified.access_key, verified.is_presigned) == (KEY, expires is not None)
    assert request.path == f"/films/{key}".encode()
    assert (verified.payload is PayloadForm.SIGNED) is (expires is None)


def parts_of(request: S3HttpRequest) -> list[tuple[str, bytes]]:
    """All that is signed, with names by which `with_byte` changes them."""
    parts = [("path", request.path), ("method", request.method.encode())]
    parts += [(f"header {name.decode()}", value) for name, value in request.headers if name not in UNSIGNED]
    parts += [(f"parameter name {place}", parameter.name) for place, parameter in enumerate(request.parameters)]
    parts += [(f"parameter value {place}", parameter.value) for place, parameter in enumerate(request.parameters)]
    return [(name, value) for name, value in parts if value]


UNSIGNED: Final = {b"user-agent", b"content-length"}


def with_byte(request: S3HttpRequest, part: str, place: int, flip: int) -> S3HttpRequest:
    """The request with one byte of a part changed, after the server has split it into its parts."""
    value = bytearray(dict(parts_of(request))[part])
    value[place % len(value)] ^= flip
    new = bytes(value)
    kind, _, name = part.partition(" ")
    match kind:
        case "path":
            return changed(request, path=new)
        case "method":
            return changed(request, method=new.decode("latin-1"))
        case "header":
            headers = [(known, new if known.decode() == name else old) for known, old in request.headers]
            return changed(request, headers=headers)
        case _:
            field, number = name.split()
            parameters = list(request.parameters)
            old = parameters[int(number)]
            parameters[int(number)] = type(old)(new, old.value) if field == "name" else type(old)(old.name, new)
            return changed(request, parameters=tuple(parameters))


@given(KEYS, st.none() | st.integers(1, 604800), st.data(), st.integers(0, 2**20), st.integers(1, 255))
def test_no_byte_of_a_signed_request_can_be_changed(
    key: str, expires: int | None, data: st.DataObject, place: int, flip: int
) -> None:
    request = signed_by_botocore(
        "GET",
        f"/films/{key}",
        parameters=[("prefix", "ä b"), ("marker", "x")],
        headers=[("x-amz-meta-a", "film"), ("Range", "bytes=0-99")],
        expires=expires,
    )
    assert verifies(request)
    part = data.draw(st.sampled_from([name for name, _ in parts_of(request)]))
    try:
        other = with_byte(request, part, place, flip)
    except S3Error:
        return
    if canonically(other) == canonically(request):
        return
    assert not verifies(other), part


def canonically(request: S3HttpRequest) -> Any:
    """What a request means: white space of headers is signed as one space."""
    return (
        request.method,
        request.path,
        sorted(request.parameters),
        sorted((name, b" ".join(value.split())) for name, value in request.headers if name != b"authorization"),
        [b"".join(value.split()) for name, value in request.headers if name == b"authorization"],
    )


def test_a_byte_on_the_wire_that_changes_the_path_is_noticed() -> None:
    request = signed_by_botocore("GET", "/films/a b/c")
    wire = b"/films/a%20b/c"
    for place in range(1, len(wire)):
        for flip in (1, 2, 32):
            other = bytearray(wire)
            other[place] ^= flip
            try:
                changed_path = unquote_to_bytes(bytes(other))
                same = changed_path == request.path
                assert verifies(S3HttpRequest("GET", bytes(other), b"", request.headers)) is same
            except S3Error as error:
                assert error.code == "InvalidURI"  # noqa: PT017


def test_a_header_cannot_be_added_removed_or_repeated() -> None:
    request = signed_by_botocore("PUT", "/films/a", headers=[("x-amz-meta-a", "film")])
    with pytest.raises(S3AccessDenied) as caught:
        verifier().verify(with_header(request, b"x-amz-acl", b"public-read"), NOW)
    assert caught.value.details == {"HeadersNotSigned": "x-amz-acl"}
    assert not verifies(with_header(request, b"x-amz-meta-a", None))
    assert not verifies(changed(request, headers=[*request.headers, (b"x-amz-meta-a", b"film")]))


def test_headers_that_occur_twice_are_signed_together() -> None:
    signed = signed_by_botocore("PUT", "/films/a", headers=[("x-amz-meta-a", "one"), ("x-amz-meta-a", "two")])
    assert [value for name, value in signed.headers if name == b"x-amz-meta-a"] == [b"one", b"two"]
    assert verifies(signed)


def test_the_clock_of_a_client_may_differ_by_15_minutes() -> None:
    for minutes in (-14, 14):
        assert verifies(signed_by_botocore("GET", "/films/a", time=NOW + timedelta(minutes=minutes)))
    for minutes in (-16, 16):
        with pytest.raises(S3RequestTimeTooSkewed) as caught:
            verifier().verify(signed_by_botocore("GET", "/films/a", time=NOW + timedelta(minutes=minutes)), NOW)
        assert caught.value.details["MaxAllowedSkewMilliseconds"] == "900000"


def test_the_header_date_takes_the_place_of_x_amz_date() -> None:
    request = signed_by_botocore("GET", "/films/a", headers=[("Date", "any")])
    assert not request.header_values(b"x-amz-date")
    assert verifies(request)


def test_a_presigned_url_expires() -> None:
    request = signed_by_botocore("GET", "/films/a", expires=60)
    assert verifies(request, NOW + timedelta(seconds=59))
    with pytest.raises(S3AccessDenied, match="has expired"):
        verifier().verify(request, NOW + timedelta(seconds=60))
    assert verifies(request, NOW - timedelta(minutes=14))
    with pytest.raises(S3AccessDenied, match="not valid yet"):
        verifier().verify(request, NOW - timedelta(minutes=16))
    for expires in (0, 604801, -1):
        with pytest.raises(S3AuthorizationQueryParametersError, match="1 to 604800"):
            verifier().verify(signed_by_botocore("GET", "/films/a", expires=expires), NOW)


def test_a_fault_of_the_authorization_has_its_error() -> None:
    request = signed_by_botocore("GET", "/films/a")
    table: list[tuple[bytes, bytes, type[S3Error]]] = [
        (rb"/us-east-1/", b"/eu-west-1/", S3AuthorizationHeaderMalformed),
        (rb"/s3/", b"/ec2/", S3AuthorizationHeaderMalformed),
        (rb"/20261126/", b"/20261125/", S3AuthorizationHeaderMalformed),
        (rb"aws4_request", b"aws5_request", S3AuthorizationHeaderMalformed),
        (rb"SignedHeaders=[^,]*", b"SignedHeaders=host;a;b", S3AuthorizationHeaderMalformed),
        (rb"SignedHeaders=[^,]*", b"SignedHeaders=x-amz-content-sha256;x-amz-date", S3AccessDenied),
        (rb"Signature=.*", b"Signature=abc", S3AuthorizationHeaderMalformed),
        (rb"Signature=.*", b"Signature=" + b"0" * 64, S3SignatureDoesNotMatch),
        (rb", Signature=.*", b"", S3AuthorizationHeaderMalformed),
        (rb"^AWS4-HMAC-SHA256", b"Bearer", S3InvalidRequest),
        (rb"^AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256", S3NotImplemented),
        (rb"AKIAIOSFODNN7EXAMPLE", b"AKIAELSE", S3InvalidAccessKeyId),
    ]
    for old, new, error in table:
        authorization = re.sub(old, new, request.header_values(b"authorization")[0])
        with pytest.raises(error):
            verifier().verify(with_header(request, b"authorization", authorization), NOW)


def test_the_error_of_a_wrong_region_names_the_right_one() -> None:
    with pytest.raises(S3AuthorizationHeaderMalformed) as caught:
        SignatureVerifier({KEY: SECRET}.get, "eu-central-1").verify(signed_by_botocore("GET", "/films/a"), NOW)
    assert caught.value.details == {"Region": "eu-central-1"}


def test_an_unsigned_request_and_one_signed_twice_are_refused() -> None:
    request = signed_by_botocore("GET", "/films/a")
    with pytest.raises(S3AccessDenied, match="not signed"):
        verifier().verify(with_header(request, b"authorization", None), NOW)
    twice = with_header(
        signed_by_botocore("GET", "/films/a", expires=5), b"authorization", request.header_values(b"authorization")[0]
    )
    with pytest.raises(S3InvalidArgument, match="signed twice"):
        verifier().verify(twice, NOW)


def test_a_missing_hash_and_a_session_token_are_refused() -> None:
    request = signed_by_botocore("GET", "/films/a")
    with pytest.raises(S3MissingSecurityHeader):
        verifier().verify(with_header(request, b"x-amz-content-sha256", None), NOW)
    with pytest.raises(S3InvalidToken):
        verifier().verify(with_header(request, b"x-amz-security-token", b"x"), NOW)


def test_signature_version_2_is_refused_with_its_remedy() -> None:
    request = AWSRequest(method="GET", url="http://s3.example/films/a")
    HmacV1Auth(Credentials(KEY, SECRET)).add_auth(request)
    with pytest.raises(S3InvalidRequest, match="AWS4-HMAC-SHA256"):
        verifier().verify(request_of(request.prepare()), NOW)
    query = S3HttpRequest("GET", b"/films/a", b"AWSAccessKeyId=x&Expires=1&Signature=y", [(b"host", b"s3.example")])
    with pytest.raises(S3InvalidRequest, match="AWS4-HMAC-SHA256"):
        verifier().verify(query, NOW)
