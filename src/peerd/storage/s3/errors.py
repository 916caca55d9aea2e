"""The errors of S3: a table of codes, and the exception that carries one to the client.

A client gets `<Code>`, `<Message>` and the details of an error as elements of an XML document
(`peerd.storage.s3_front.exchange.error_response`).
"""

from __future__ import annotations

from enum import Enum, unique

from peerd.domain.errors import PeerdError


@unique
class S3Code(Enum):
    """A code that S3's clients know, with its status of HTTP, and a sentence that says why a request was refused."""

    AccessDenied = 403, "the access is denied"
    AccessControlListNotSupported = 400, "the bucket has no access control lists"
    AuthorizationHeaderMalformed = 400, "the header Authorization is not of the form that Signature Version 4 has"
    AuthorizationQueryParametersError = (
        400,
        "the query parameters that authorize the request are not as Signature Version 4 has them",
    )
    BadDigest = 400, "the content does not have the digest or checksum that the request names"
    BucketNotEmpty = 409, "the bucket still has objects; delete them first"
    EntityTooLarge = 400, "the object would be larger than is allowed"
    EntityTooSmall = 400, "a part that is not the last one is smaller than is allowed"
    IllegalLocationConstraintException = 400, "the location constraint is not the region of this server"
    IncompleteBody = 400, "the body has another length than the request names"
    InternalError = 500, "the request has failed in the server; repeat it"
    InvalidAccessKeyId = 403, "there is no access key with this id"
    InvalidArgument = 400, "an argument is not valid"
    InvalidBucketName = (
        400,
        "a bucket's name has 3 to 63 of a-z, 0-9, - and dots, a letter or digit at both ends and beside each dot",
    )
    InvalidDigest = 400, "the header Content-MD5 or a checksum is not the Base64 text of a digest"
    InvalidPart = 400, "a part of the upload does not exist, or has another ETag"
    InvalidPartNumber = 416, "the object does not have so many parts"
    InvalidPartOrder = 400, "the parts are not in ascending order of their numbers"
    InvalidRange = 416, "the range is not within the object"
    InvalidRequest = 400, "the request is not valid"  # parts of it contradict each other, or are missing
    InvalidStorageClass = 400, "there is no such storage class"
    InvalidToken = 400, "there are no session tokens on this server: use an access key without one"
    InvalidURI = 400, "the path or the query cannot be decoded"
    KeyTooLongError = 400, "a key has at most 1,024 bytes of UTF-8"
    MalformedTrailerError = 400, "the trailer of the body is not the one that the request announced"
    MalformedXML = 400, "the XML document is not of the form that this operation takes"
    MaxMessageLengthExceeded = 400, "the document in the body is too large"
    MetadataTooLarge = 400, "the headers x-amz-meta-* have more than 2 KiB"
    MethodNotAllowed = 405, "the resource has no such method"
    MissingContentLength = (
        411,
        "the length of the body is missing: send Content-Length, or x-amz-decoded-content-length",
    )
    MissingSecurityHeader = 400, "a header that the signature needs is missing"
    NoSuchBucket = 404, "there is no bucket of this name"
    NoSuchKey = 404, "there is no object with this key"
    NoSuchUpload = 404, "there is no such multipart upload: it was completed or aborted, or never began"
    NotImplemented = 501, "the server does not have this part of S3"
    NotModified = 304, "the object is the one that the client has"  # the response has no body
    PreconditionFailed = 412, "a condition of the request does not hold"
    RequestTimeTooSkewed = 403, "the clock of the client differs too much from the server's"
    ServiceUnavailable = 503, "the server cannot take the request at this time; repeat it later"
    SignatureDoesNotMatch = 403, "the signature is not the one that the secret key gives for this request"
    XAmzContentSHA256Mismatch = (
        400,
        "the body does not have the SHA-256 that the header x-amz-content-sha256 names",
    )

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        self.sentence = sentence


class S3Error(PeerdError):
    """A request of S3 is refused; its client gets the code as a response.

    Arguments: ``problem``: a sentence that is more exact than the code's. ``details``: further elements of the
    XML document, by their names, for example ``Region``.

    >>> error = S3Error(S3Code.NoSuchKey, Key="a.mp4")
    >>> error.code.name, error.code.status, str(error), error.details
    ('NoSuchKey', 404, 'there is no object with this key', {'Key': 'a.mp4'})
    """

    def __init__(self, code: S3Code, problem: str | None = None, **details: str) -> None:
        self.code = code
        self.details = details
        super().__init__(problem or code.sentence)
