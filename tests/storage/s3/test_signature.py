"""Signatures that botocore makes are verified, and no byte of what they cover can be changed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

from botocore.auth import HmacV1Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm
from tests.storage.s3.refusals import refused_as
from tests.storage.s3.signed_requests import KEY, NOW, SECRET, request_of, signed_by_botocore, verify

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
        verify(request, now)
    except S3Error:
        return False
    return True


def changed(request: S3HttpRequest, **parts: Any) -> S3HttpRequest:
    """A request with other parts; what was signed stays."""
    other = S3HttpRequest(parts.pop("method", request.method), b"/", b"", parts.pop("headers", request.headers))
    other.path, other.parameters = request.path, request.parameters
    for name, value in parts.items():
        setattr(other, name, value)
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
    verified = verify(request, NOW)
    assert (verified.access_key, verified.is_presigned) == (KEY, expires is not None)
    assert request.path == f"/films/{key}".encode()
    assert (verified.payload is PayloadForm.SIGNED) is (expires is None)


@given(KEYS, st.none() | st.integers(1, 604800), st.data(), st.integers(1, 255))
def test_no_byte_of_what_is_signed_can_be_changed(
    key: str, expires: int | None, data: st.DataObject, flip: int
) -> None:
    request = signed_by_botocore(
        "GET",
        f"/films/{key}",
        parameters=[("prefix", "ä b"), ("marker", "x")],
        headers=[("x-amz-meta-a", "film"), ("Range", "bytes=0-99")],
        expires=expires,
    )
    assert verifies(request)

    def another(value: bytes) -> bytes:
        place = data.draw(st.integers(0, len(value) - 1))
        return value[:place] + bytes([value[place] ^ flip]) + value[place + 1 :]

    first, *rest = request.parameters
    others: dict[str, dict[str, Any]] = {
        "method": {"method": "PUT"},
        "path": {"path": another(request.path)},
        "name": {"parameters": (type(first)(another(first.name), first.value), *rest)},
        "value": {"parameters": (type(first)(first.name, another(first.value)), *rest)},
        "lacks one": {"parameters": tuple(rest)},
    }
    for part, other in others.items():
        assert not verifies(changed(request, **other)), part
    for name, value in request.headers:
        if name in {b"host", b"x-amz-meta-a", b"range", b"x-amz-date", b"x-amz-content-sha256"}:
            new = another(value)
            assert b"".join(new.split()) == b"".join(value.split()) or not verifies(with_header(request, name, new))


def test_a_header_cannot_be_added_removed_or_repeated() -> None:
    request = signed_by_botocore("PUT", "/films/a", headers=[("x-amz-meta-a", "one"), ("x-amz-meta-a", "two")])
    assert [value for name, value in request.headers if name == b"x-amz-meta-a"] == [b"one", b"two"]
    assert verifies(request)
    with refused_as(S3Code.AccessDenied) as caught:
        verify(with_header(request, b"x-amz-acl", b"public-read"), NOW)
    assert caught.value.details == {"HeadersNotSigned": "x-amz-acl"}
    assert not verifies(with_header(request, b"x-amz-meta-a", None))
    assert not verifies(changed(request, headers=[*request.headers, (b"x-amz-meta-a", b"film")]))
    authorization = request.header_values(b"authorization")[0]
    twice = with_header(signed_by_botocore("PUT", "/films/a", expires=5), b"authorization", authorization)
    table: list[tuple[S3HttpRequest, S3Code]] = [
        (with_header(request, b"authorization", None), S3Code.AccessDenied),
        (twice, S3Code.InvalidArgument),
        (with_header(request, b"x-amz-content-sha256", None), S3Code.MissingSecurityHeader),
        (with_header(request, b"x-amz-security-token", b"x"), S3Code.InvalidToken),
    ]
    for refused, error in table:
        with refused_as(error):
            verify(refused, NOW)
    with refused_as(S3Code.AuthorizationHeaderMalformed) as wrong_region:
        verify(with_header(request, b"authorization", authorization.replace(b"us-east-1", b"eu-central-1")), NOW)
    assert wrong_region.value.details == {"Region": "us-east-1"}


def test_the_clock_of_a_client_may_differ_by_15_minutes() -> None:
    for minutes in (-14, 14):
        assert verifies(signed_by_botocore("GET", "/films/a", time=NOW + timedelta(minutes=minutes)))
    dated = signed_by_botocore("GET", "/films/a", headers=[("Date", "any")])
    assert not dated.header_values(b"x-amz-date")
    assert verifies(dated), "the header Date takes its place"
    for minutes in (-16, 16):
        with refused_as(S3Code.RequestTimeTooSkewed) as caught:
            verify(signed_by_botocore("GET", "/films/a", time=NOW + timedelta(minutes=minutes)), NOW)
        assert caught.value.details["MaxAllowedSkewMilliseconds"] == "900000"


def test_a_presigned_url_expires() -> None:
    request = signed_by_botocore("GET", "/films/a", expires=60)
    assert verifies(request, NOW + timedelta(seconds=59))
    with refused_as(S3Code.AccessDenied, match="has expired"):
        verify(request, NOW + timedelta(seconds=60))
    assert verifies(request, NOW - timedelta(minutes=14))
    with refused_as(S3Code.AccessDenied, match="not valid yet"):
        verify(request, NOW - timedelta(minutes=16))
    for expires in (0, 604801, -1):
        with refused_as(S3Code.AuthorizationQueryParametersError, match="1 to 604800"):
            verify(signed_by_botocore("GET", "/films/a", expires=expires), NOW)


def test_a_fault_of_the_authorization_has_its_error() -> None:
    request = signed_by_botocore("GET", "/films/a")
    table: list[tuple[bytes, bytes, S3Code]] = [
        (rb"/us-east-1/", b"/eu-west-1/", S3Code.AuthorizationHeaderMalformed),
        (rb"/s3/", b"/ec2/", S3Code.AuthorizationHeaderMalformed),
        (rb"/20261126/", b"/20261125/", S3Code.AuthorizationHeaderMalformed),
        (rb"aws4_request", b"aws5_request", S3Code.AuthorizationHeaderMalformed),
        (rb"SignedHeaders=[^,]*", b"SignedHeaders=host;a;b", S3Code.AuthorizationHeaderMalformed),
        (rb"SignedHeaders=[^,]*", b"SignedHeaders=x-amz-content-sha256;x-amz-date", S3Code.AccessDenied),
        (rb"Signature=.*", b"Signature=abc", S3Code.AuthorizationHeaderMalformed),
        (rb"Signature=.*", b"Signature=" + b"0" * 64, S3Code.SignatureDoesNotMatch),
        (rb", Signature=.*", b"", S3Code.AuthorizationHeaderMalformed),
        (rb"^AWS4-HMAC-SHA256", b"Bearer", S3Code.InvalidRequest),
        (rb"^AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256", S3Code.NotImplemented),
        (rb"AKIAIOSFODNN7EXAMPLE", b"AKIAELSE", S3Code.InvalidAccessKeyId),
    ]
    for old, new, error in table:
        authorization = re.sub(old, new, request.header_values(b"authorization")[0])
        with refused_as(error):
            verify(with_header(request, b"authorization", authorization), NOW)


def test_signature_version_2_is_refused_with_its_remedy() -> None:
    request = AWSRequest(method="GET", url="http://s3.example/films/a")
    HmacV1Auth(Credentials(KEY, SECRET)).add_auth(request)
    with refused_as(S3Code.InvalidRequest, match="AWS4-HMAC-SHA256"):
        verify(request_of(request.prepare()), NOW)
    query = S3HttpRequest("GET", b"/films/a", b"AWSAccessKeyId=x&Expires=1&Signature=y", [(b"host", b"s3.example")])
    with refused_as(S3Code.InvalidRequest, match="AWS4-HMAC-SHA256"):
        verify(query, NOW)
