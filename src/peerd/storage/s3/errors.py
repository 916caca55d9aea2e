"""The errors of S3: each class has the code and the HTTP status that clients know, and a sentence.

A client gets `<Code>`, `<Message>` and the details of an error as elements of an XML document
(`responses.error_response`).
"""

from __future__ import annotations

from typing import ClassVar

from peerd.domain.errors import PeerdError


class S3Error(PeerdError):
    """The root of the errors that a client of S3 gets as a response.

    Arguments: ``problem``: a sentence that is more exact than that of the class. ``details``: further elements of the
    XML document, by their names, for example ``Region``.

    >>> error = S3NoSuchKey(Key="a.mp4")
    >>> error.code, error.status, str(error), error.details
    ('NoSuchKey', 404, 'there is no object with this key', {'Key': 'a.mp4'})
    """

    code: ClassVar[str] = "InternalError"
    status: ClassVar[int] = 500
    sentence: ClassVar[str] = "the request has failed in the server; repeat it"

    def __init_subclass__(cls, *, code: str, status: int, sentence: str) -> None:
        super().__init_subclass__()
        cls.code, cls.status, cls.sentence = code, status, sentence

    def __init__(self, problem: str | None = None, **details: str) -> None:
        self.problem = problem
        self.details = details
        super().__init__(problem or self.sentence)


class S3AccessDenied(S3Error, code="AccessDenied", status=403, sentence="the access is denied"):
    """The credentials do not permit the request, or a presigned URL has expired."""


class S3AccessControlListNotSupported(
    S3Error,
    code="AccessControlListNotSupported",
    status=400,
    sentence="the bucket has no access control lists",
):
    """A request sets an access control list other than the owner's own."""


class S3AuthorizationHeaderMalformed(
    S3Error,
    code="AuthorizationHeaderMalformed",
    status=400,
    sentence="the header Authorization is not of the form that Signature Version 4 has",
):
    """The header Authorization cannot be read, or its scope is for another region or service."""


class S3AuthorizationQueryParametersError(
    S3Error,
    code="AuthorizationQueryParametersError",
    status=400,
    sentence="the query parameters that authorize the request are not as Signature Version 4 has them",
):
    """The query of a presigned URL cannot be read."""


class S3BadDigest(
    S3Error,
    code="BadDigest",
    status=400,
    sentence="the content does not have the digest or checksum that the request names",
):
    """The body has another digest than the request names."""


class S3BucketNotEmpty(
    S3Error,
    code="BucketNotEmpty",
    status=409,
    sentence="the bucket still has objects; delete them first",
):
    """A bucket is to be deleted that has objects."""


class S3EntityTooLarge(
    S3Error,
    code="EntityTooLarge",
    status=400,
    sentence="the object would be larger than is allowed",
):
    """An object or a part is too large."""


class S3EntityTooSmall(
    S3Error,
    code="EntityTooSmall",
    status=400,
    sentence="a part that is not the last one is smaller than is allowed",
):
    """A part of a multipart upload is too small."""


class S3IllegalLocationConstraint(
    S3Error,
    code="IllegalLocationConstraintException",
    status=400,
    sentence="the location constraint is not the region of this server",
):
    """A bucket is to be created in another region."""


class S3IncompleteBody(
    S3Error,
    code="IncompleteBody",
    status=400,
    sentence="the body has another length than the request names",
):
    """A body ended before its length, or is longer."""


class S3InternalError(
    S3Error,
    code="InternalError",
    status=500,
    sentence="the request has failed in the server; repeat it",
):
    """The server has failed."""


class S3InvalidAccessKeyId(
    S3Error,
    code="InvalidAccessKeyId",
    status=403,
    sentence="there is no access key with this id",
):
    """A request is signed with an unknown key."""


class S3InvalidArgument(S3Error, code="InvalidArgument", status=400, sentence="an argument is not valid"):
    """A header or a query parameter has a value that is not permitted."""


class S3InvalidBucketName(
    S3Error,
    code="InvalidBucketName",
    status=400,
    sentence="a bucket's name has 3 to 63 of a-z, 0-9, - and dots, a letter or digit at both ends and beside each dot",
):
    """A bucket's name is not permitted."""


class S3InvalidDigest(
    S3Error,
    code="InvalidDigest",
    status=400,
    sentence="the header Content-MD5 or a checksum is not the Base64 text of a digest",
):
    """A digest cannot be read."""


class S3InvalidPart(
    S3Error,
    code="InvalidPart",
    status=400,
    sentence="a part of the upload does not exist, or has another ETag",
):
    """An upload is to be completed with a part that was not uploaded."""


class S3InvalidPartNumber(
    S3Error,
    code="InvalidPartNumber",
    status=416,
    sentence="the object does not have so many parts",
):
    """A part of an object is to be read that it does not have."""


class S3InvalidPartOrder(
    S3Error,
    code="InvalidPartOrder",
    status=400,
    sentence="the parts are not in ascending order of their numbers",
):
    """An upload is to be completed with parts out of order."""


class S3InvalidRange(S3Error, code="InvalidRange", status=416, sentence="the range is not within the object"):
    """None of the bytes that a request wants exist."""


class S3InvalidRequest(S3Error, code="InvalidRequest", status=400, sentence="the request is not valid"):
    """Parts of a request contradict each other, or are missing."""


class S3InvalidStorageClass(S3Error, code="InvalidStorageClass", status=400, sentence="there is no such storage class"):
    """A request names an unknown storage class."""


class S3InvalidToken(
    S3Error,
    code="InvalidToken",
    status=400,
    sentence="there are no session tokens on this server: use an access key without one",
):
    """A request carries a session token."""


class S3InvalidURI(S3Error, code="InvalidURI", status=400, sentence="the path or the query cannot be decoded"):
    """A percent sign is not followed by two hex digits, or the text is not UTF-8."""


class S3KeyTooLong(S3Error, code="KeyTooLongError", status=400, sentence="a key has at most 1,024 bytes of UTF-8"):
    """The key of an object is too long."""


class S3MalformedTrailer(
    S3Error,
    code="MalformedTrailerError",
    status=400,
    sentence="the trailer of the body is not the one that the request announced",
):
    """The trailer of a chunked body cannot be read."""


class S3MalformedXML(
    S3Error,
    code="MalformedXML",
    status=400,
    sentence="the XML document is not of the form that this operation takes",
):
    """The document in a body cannot be read."""


class S3MaxMessageLengthExceeded(
    S3Error,
    code="MaxMessageLengthExceeded",
    status=400,
    sentence="the document in the body is too large",
):
    """A document is larger than its operation can need."""


class S3MetadataTooLarge(
    S3Error,
    code="MetadataTooLarge",
    status=400,
    sentence="the headers x-amz-meta-* have more than 2 KiB",
):
    """An object has too much metadata."""


class S3MethodNotAllowed(S3Error, code="MethodNotAllowed", status=405, sentence="the resource has no such method"):
    """A method of HTTP that S3 does not have for a resource."""


class S3MissingContentLength(
    S3Error,
    code="MissingContentLength",
    status=411,
    sentence="the length of the body is missing: send Content-Length, or x-amz-decoded-content-length",
):
    """A body has no length."""


class S3MissingSecurityHeader(
    S3Error,
    code="MissingSecurityHeader",
    status=400,
    sentence="a header that the signature needs is missing",
):
    """A request is signed, and lacks a header that must be signed."""


class S3NoSuchBucket(S3Error, code="NoSuchBucket", status=404, sentence="there is no bucket of this name"):
    """A bucket does not exist."""


class S3NoSuchKey(S3Error, code="NoSuchKey", status=404, sentence="there is no object with this key"):
    """An object does not exist."""


class S3NoSuchUpload(
    S3Error,
    code="NoSuchUpload",
    status=404,
    sentence="there is no such multipart upload: it was completed or aborted, or never began",
):
    """A multipart upload does not exist."""


class S3NotImplemented(S3Error, code="NotImplemented", status=501, sentence="the server does not have this part of S3"):
    """A request is for a part of S3 that this server does not have."""


class S3NotModified(S3Error, code="NotModified", status=304, sentence="the object is the one that the client has"):
    """A conditional read finds the object unchanged; the response has no body."""


class S3PreconditionFailed(
    S3Error,
    code="PreconditionFailed",
    status=412,
    sentence="a condition of the request does not hold",
):
    """A conditional header does not match the object."""


class S3RequestTimeTooSkewed(
    S3Error,
    code="RequestTimeTooSkewed",
    status=403,
    sentence="the clock of the client differs too much from that of the server",
):
    """A signed request has a date too far from the server's time."""


class S3ServiceUnavailable(
    S3Error,
    code="ServiceUnavailable",
    status=503,
    sentence="the server cannot take the request at this time; repeat it later",
):
    """The server, or its database, is not available."""


class S3SignatureDoesNotMatch(
    S3Error,
    code="SignatureDoesNotMatch",
    status=403,
    sentence="the signature is not the one that the secret key gives for this request",
):
    """A signature is wrong: the secret, or what was signed."""


class S3ContentSha256Mismatch(
    S3Error,
    code="XAmzContentSHA256Mismatch",
    status=400,
    sentence="the body does not have the SHA-256 that the header x-amz-content-sha256 names",
):
    """A body is not the one that was signed."""
