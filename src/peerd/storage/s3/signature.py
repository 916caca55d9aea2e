"""AWS Signature Version 4, as a server verifies it.

A signature covers the *canonical request*: method, path, sorted query, the signed headers, and the hash of the body. It
is an HMAC of the hash of that, of a time and of a scope (date, region, service), with a key that is derived from the
secret of the access key and the scope. The client sends it in the header Authorization, or in the query of a presigned
URL. See "Authenticating Requests (AWS Signature Version 4)" in the Amazon S3 API Reference.

S3 encodes the path once, and does not normalise it. The path is decoded and encoded here, so that a client may encode
more or fewer characters on the wire than it does when it signs; what is signed is the path that is served.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import QueryParameter, S3HttpRequest, percent_encoded

ALGORITHM: Final = "AWS4-HMAC-SHA256"
REGION: Final = "us-east-1"
"""The region of all buckets, whose location constraint is empty."""
TOLERANCE: Final = timedelta(minutes=15)
"""How far the clock of a client may differ."""
MAX_EXPIRES: Final = 7 * 24 * 3600
"""How many seconds a presigned URL may be valid."""

SecretOf = Callable[[str], str | None]
"""Returns the secret of an access key; None if there is no such key, or it is disabled."""

_SIGNATURE: Final = r"[0-9a-f]{64}"
_HEADER_NAMES: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+(;[a-z0-9!#$%&'*+.^_`|~-]+)*")
_TIME: Final = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class PayloadForm(Enum):
    """How the body of a request is covered by its signature: the value of x-amz-content-sha256."""

    SIGNED = "the SHA-256 of the body"
    UNSIGNED = "UNSIGNED-PAYLOAD"
    SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    SIGNED_CHUNKS_AND_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
    UNSIGNED_CHUNKS_AND_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

    @property
    def is_chunked(self) -> bool:
        """Whether the body is aws-chunked: the chunks carry their sizes."""
        return self not in (PayloadForm.SIGNED, PayloadForm.UNSIGNED)

    @property
    def has_signed_chunks(self) -> bool:
        """Whether each chunk carries a signature."""
        return self in (PayloadForm.SIGNED_CHUNKS, PayloadForm.SIGNED_CHUNKS_AND_TRAILER)

    @property
    def has_trailer(self) -> bool:
        """Whether headers follow the last chunk."""
        return self in (PayloadForm.SIGNED_CHUNKS_AND_TRAILER, PayloadForm.UNSIGNED_CHUNKS_AND_TRAILER)


class Credential(msgspec.Struct, frozen=True):
    """An access key, and the scope of a signature of it."""

    access_key: str
    date: str
    region: str
    service: str

    @property
    def scope(self) -> str:
        """The scope as it is signed."""
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


class VerifiedSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The signature of a request, after it was found to be right. Its key signs the chunks of the body too."""

    credential: Credential
    time: str
    """The time of the signature, as signed: YYYYMMDDTHHMMSSZ."""
    signature: str
    key: bytes
    payload: PayloadForm
    sha256: str | None
    """The hex SHA-256 that the body must have, if ``payload`` is SIGNED."""
    is_presigned: bool

    @property
    def access_key(self) -> str:
        """The access key by which the request was signed."""
        return self.credential.access_key


class _Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of its signature, before anything of it is verified."""

    credential: Credential
    signed_headers: tuple[str, ...]
    signature: str
    time: datetime
    payload: str
    is_presigned: bool


def verify_signature(request: S3HttpRequest, secret_of: SecretOf, now: datetime) -> VerifiedSignature:
    """Verify the signature of a request at the time ``now``, which has a time zone.

    Raises S3Error: AccessDenied if there is no signature, or a presigned URL has expired;
    SignatureDoesNotMatch, InvalidAccessKeyId, RequestTimeTooSkewed, AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError, and others for what is missing or cannot be read.
    """
    claimed = _from_query(request, now) if _is_presigned(request) else _from_header(request, now)
    payload, sha256 = _payload(claimed.payload)
    _refuse_session_token(request)
    _check_signed_headers(request, claimed.signed_headers)
    _check_scope(claimed)
    access_key = claimed.credential.access_key
    secret = secret_of(access_key)
    if secret is None:
        raise S3Error(S3Code.InvalidAccessKeyId, AWSAccessKeyId=access_key[:128])
    time = claimed.time.strftime(_TIME_FORMAT)
    canonical = canonical_request(request, claimed.signed_headers, claimed.payload)
    to_sign = string_to_sign(time, claimed.credential.scope, canonical)
    key = signing_key(secret, claimed.credential)
    if not hmac.compare_digest(hex_signature(key, to_sign), claimed.signature):
        raise S3Error(
            S3Code.SignatureDoesNotMatch,
            AWSAccessKeyId=access_key,
            StringToSign=to_sign.decode(),
            SignatureProvided=claimed.signature,
            CanonicalRequest=canonical.decode("latin-1"),
        )
    return VerifiedSignature(
        credential=claimed.credential,
        time=time,
        signature=claimed.signature,
        key=key,
        payload=payload,
        sha256=sha256,
        is_presigned=claimed.is_presigned,
    )


def _check_scope(claimed: _Claimed) -> None:
    credential = claimed.credential
    fault = S3Code.AuthorizationQueryParametersError if claimed.is_presigned else S3Code.AuthorizationHeaderMalformed
    if credential.service != "s3":
        raise S3Error(fault, f"the scope is for the service {quoted(credential.service)}; expected is 's3'")
    if credential.region != REGION:
        raise S3Error(
            fault,
            f"the region {quoted(credential.region)} is wrong; expected is {quoted(REGION)}",
            Region=REGION,
        )
    if credential.date != claimed.time.strftime("%Y%m%d"):
        raise S3Error(fault, "the date of the scope is not the date of the request")


def canonical_request(request: S3HttpRequest, signed_headers: Iterable[str], payload: str) -> bytes:
    r"""What a signature covers.

    Arguments: ``signed_headers``: names in lower case, sorted; ``payload``: the value of x-amz-content-sha256.

    >>> request = S3HttpRequest("GET", b"/a b", b"b&a=1", [(b"Host", b"x")])
    >>> canonical_request(request, ["host"], "UNSIGNED-PAYLOAD").split(b"\n")
    [b'GET', b'/a%20b', b'a=1&b=', b'host:x', b'', b'host', b'UNSIGNED-PAYLOAD']
    """
    names = list(signed_headers)
    parameters = sorted(  # by name, then by value: "a=" before "a-b="
        (percent_encoded(parameter.name), percent_encoded(parameter.value)) for parameter in _encodable(request)
    )
    headers = [
        name.encode() + b":" + b",".join(b" ".join(value.split()) for value in request.header_values(name.encode()))
        for name in names
    ]
    return b"\n".join(
        [
            request.method.encode(),
            percent_encoded(request.path, safe="/"),
            b"&".join(name + b"=" + value for name, value in parameters),
            *headers,
            b"",
            ";".join(names).encode(),
            payload.encode(),
        ]
    )


def string_to_sign(time: str, scope: str, canonical: bytes) -> bytes:
    """What the signature is an HMAC of."""
    return f"{ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(canonical).hexdigest()}".encode()


def signing_key(secret: str, credential: Credential) -> bytes:
    """The key for all signatures of one scope."""
    key = b"AWS4" + secret.encode()
    for text in credential.scope.split("/"):
        key = hmac.digest(key, text.encode(), "sha256")
    return key


def hex_signature(key: bytes, text: bytes) -> str:
    """The HMAC-SHA256 of a text, as hex digits."""
    return hmac.digest(key, text, "sha256").hex()


def _encodable(request: S3HttpRequest) -> Iterable[QueryParameter]:
    """The parameters that are signed: all but the signature itself."""
    return (parameter for parameter in request.parameters if parameter.name != b"X-Amz-Signature")


# ---------------------------------------------------------------- what the request says


def _is_presigned(request: S3HttpRequest) -> bool:
    """Whether the query authorizes the request. Raises S3Error for Signature Version 2, none, and two at once."""
    authorization = request.header("authorization")
    names = {parameter.name for parameter in request.parameters}
    is_presigned = bool(names & {b"X-Amz-Algorithm", b"X-Amz-Signature", b"X-Amz-Credential"})
    if b"AWSAccessKeyId" in names or (authorization or "").startswith("AWS "):
        raise S3Error(S3Code.InvalidRequest, "Signature Version 2 is not taken: please use AWS4-HMAC-SHA256")
    if authorization is not None and is_presigned:
        raise S3Error(
            S3Code.InvalidArgument, "the request is signed twice, in the header Authorization and in its query"
        )
    if authorization is None and not is_presigned:
        raise S3Error(S3Code.AccessDenied, "the request is not signed; anonymous access is not permitted")
    return is_presigned


def _from_header(request: S3HttpRequest, now: datetime) -> _Claimed:
    fields = _authorization_fields(request.header("authorization") or "")
    fault = S3Code.AuthorizationHeaderMalformed
    credential = _credential(fields["Credential"], fault)
    time = _time_of_headers(request)
    if abs(now - time) > TOLERANCE:
        raise S3Error(
            S3Code.RequestTimeTooSkewed,
            RequestTime=time.strftime(_TIME_FORMAT),
            ServerTime=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            MaxAllowedSkewMilliseconds=str(int(TOLERANCE.total_seconds() * 1000)),
        )
    payload = request.header("x-amz-content-sha256")
    if payload is None:
        raise S3Error(S3Code.MissingSecurityHeader, "the header x-amz-content-sha256 is missing")
    return _Claimed(
        credential=credential,
        signed_headers=_signed_headers(fields["SignedHeaders"], fault),
        signature=_checked_signature(fields["Signature"], fault),
        time=time,
        payload=payload,
        is_presigned=False,
    )


def _authorization_fields(authorization: str) -> dict[str, str]:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm.startswith("AWS4-ECDSA"):
        raise S3Error(S3Code.NotImplemented, "Signature Version 4A is not taken: please use AWS4-HMAC-SHA256")
    if algorithm != ALGORITHM:
        raise S3Error(
            S3Code.InvalidRequest, f"the authorization {quoted(algorithm)} is not taken: please use {ALGORITHM}"
        )
    fields: dict[str, str] = {}
    for piece in rest.split(","):
        name, equals, value = piece.strip().partition("=")
        if not equals or name in fields:
            raise S3Error(S3Code.AuthorizationHeaderMalformed)
        fields[name] = value
    if fields.keys() != {"Credential", "SignedHeaders", "Signature"}:
        raise S3Error(
            S3Code.AuthorizationHeaderMalformed, "the header needs Credential, SignedHeaders and Signature, each once"
        )
    return fields


def _from_query(request: S3HttpRequest, now: datetime) -> _Claimed:
    fault = S3Code.AuthorizationQueryParametersError
    if (algorithm := _field(request, "X-Amz-Algorithm")) != ALGORITHM:
        raise S3Error(fault, f"X-Amz-Algorithm is {quoted(algorithm)}; please use {ALGORITHM}")
    time = _parsed_time(_field(request, "X-Amz-Date"), fault)
    expires = _field(request, "X-Amz-Expires")
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 6 and 1 <= int(expires) <= MAX_EXPIRES):
        raise S3Error(fault, f"X-Amz-Expires must be 1 to {MAX_EXPIRES} seconds")
    if time - now > TOLERANCE:
        raise S3Error(S3Code.AccessDenied, "the presigned URL is not valid yet")
    if now >= time + timedelta(seconds=int(expires)):
        raise S3Error(
            S3Code.AccessDenied,
            "the presigned URL has expired",
            ServerTime=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **{"X-Amz-Expires": expires},
        )
    sha256 = request.parameter(b"X-Amz-Content-Sha256")
    return _Claimed(
        credential=_credential(_field(request, "X-Amz-Credential"), fault),
        signed_headers=_signed_headers(_field(request, "X-Amz-SignedHeaders"), fault),
        signature=_checked_signature(_field(request, "X-Amz-Signature"), fault),
        time=time,
        payload=(sha256 or b"").decode("latin-1") or request.header("x-amz-content-sha256") or "UNSIGNED-PAYLOAD",
        is_presigned=True,
    )


def _field(request: S3HttpRequest, name: str) -> str:
    value = request.parameter(name.encode())
    if value is None:
        raise S3Error(S3Code.AuthorizationQueryParametersError, f"the query parameter {name} is missing")
    return value.decode("latin-1")


def _credential(text: str, fault: S3Code) -> Credential:
    """The parts of ACCESS_KEY/DATE/REGION/SERVICE/aws4_request; an access key may have slashes itself."""
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request" or not all(parts) or not text.isascii():
        raise S3Error(fault, "the credential is not of the form ACCESS_KEY/YYYYMMDD/REGION/s3/aws4_request")
    return Credential(*parts[:4])


def _signed_headers(text: str, fault: S3Code) -> tuple[str, ...]:
    names = text.split(";")
    if _HEADER_NAMES.fullmatch(text) is None or sorted(set(names)) != names:
        raise S3Error(fault, "SignedHeaders is not a sorted list of header names in lower case, with ';' between them")
    return tuple(names)


def _checked_signature(text: str, fault: S3Code) -> str:
    if re.fullmatch(_SIGNATURE, text) is None:
        raise S3Error(fault, "the signature is not 64 hex digits in lower case")
    return text


def _time_of_headers(request: S3HttpRequest) -> datetime:
    if (text := request.header("x-amz-date")) is not None:
        return _parsed_time(text, S3Code.AccessDenied)
    if (text := request.header("date")) is None:
        raise S3Error(S3Code.AccessDenied, "a signed request needs the header x-amz-date, or Date")
    try:
        time = parsedate_to_datetime(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise S3Error(S3Code.AccessDenied, "the header Date is not a date of HTTP") from error


def _parsed_time(text: str, fault: S3Code) -> datetime:
    try:
        if _TIME.fullmatch(text) is None:
            raise ValueError(text)
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise S3Error(fault, "the date of the request is not of the form YYYYMMDDTHHMMSSZ") from error


def _payload(text: str) -> tuple[PayloadForm, str | None]:
    if _SHA256.fullmatch(text):
        return PayloadForm.SIGNED, text
    for form in PayloadForm:
        if form.value == text:
            return form, None
    if text.startswith("STREAMING-"):
        raise S3Error(S3Code.NotImplemented, f"bodies of the form {quoted(text)} are not taken")
    raise S3Error(
        S3Code.InvalidArgument,
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a form of STREAMING-…, or a SHA-256 as hex digits",
        ArgumentName="x-amz-content-sha256",
    )


def _refuse_session_token(request: S3HttpRequest) -> None:
    if request.header_values(b"x-amz-security-token") or request.parameter(b"X-Amz-Security-Token") is not None:
        raise S3Error(S3Code.InvalidToken)


def _check_signed_headers(request: S3HttpRequest, signed: tuple[str, ...]) -> None:
    """The host, and each header that changes what S3 does, must be signed; what is signed must be there."""
    present = {name.decode("latin-1") for name, _ in request.headers}
    if "host" not in signed:
        raise S3Error(S3Code.AccessDenied, "the header host must be signed")
    unsigned = sorted(name for name in present - set(signed) if name.startswith("x-amz-"))
    if unsigned:
        raise S3Error(
            S3Code.AccessDenied,
            "there are headers in the request that are not signed",
            HeadersNotSigned=", ".join(unsigned)[:1000],
        )
    if missing := set(signed) - present:
        raise S3Error(
            S3Code.SignatureDoesNotMatch, f"signed headers are missing in the request: {quoted(sorted(missing))}"
        )
