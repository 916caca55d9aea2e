"""Errors as `application/problem+json` (RFC 9457): the status and the code of each kind of error."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from peerd.domain import errors, file_errors
from peerd.domain.lifecycle import IllegalTransition
from peerd.domain.quoting import escape_text, without_tokens
from peerd.operate.file_admission import StorageNotInstalled
from peerd.operate.wire import errors as wire_errors
from peerd.runtime.metrics.node_metrics import MetricsNotAvailable, NotServedByNode
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.web.access.login import LoginRefused
from peerd.web.file_uploads import TooManyUploads, UploadAborted
from peerd.web.request_checks import BodyTooLarge

MEDIA_TYPE: Final = "application/problem+json"
MAX_DETAIL: Final = 2_000
"""Characters."""
ANSWER_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of what is answered to programs; pages have others."""
RETRY_AFTER: Final = "2"
"""Seconds after which a request may succeed that the database did not answer."""


class InvalidRequest(errors.PeerdError):
    """A request whose arguments are none of its operation."""

    def __init__(self, detail: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(detail)


STATUS_OF: Final[Mapping[type[errors.PeerdError], HTTPStatus]] = {
    InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidTask: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidFilter: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidLimit: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidSchedule: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidArguments: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.TaskNotFound: HTTPStatus.NOT_FOUND,
    errors.NodeNotFound: HTTPStatus.NOT_FOUND,
    errors.QueueNotFound: HTTPStatus.NOT_FOUND,
    errors.BulkActionNotFound: HTTPStatus.NOT_FOUND,
    errors.BulkActionHasEnded: HTTPStatus.CONFLICT,
    errors.ScheduleNotFound: HTTPStatus.NOT_FOUND,
    errors.RunNotFound: HTTPStatus.NOT_FOUND,
    errors.UserNotFound: HTTPStatus.NOT_FOUND,
    errors.TokenNotFound: HTTPStatus.NOT_FOUND,
    errors.InvalidAccess: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UserExists: HTTPStatus.CONFLICT,
    errors.LastAdmin: HTTPStatus.CONFLICT,
    errors.NotPermitted: HTTPStatus.FORBIDDEN,
    IllegalTransition: HTTPStatus.CONFLICT,
    errors.UniqueKeyTaken: HTTPStatus.CONFLICT,
    errors.IdempotencyKeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NodeStillAlive: HTTPStatus.CONFLICT,
    errors.NodeHasPinnedTasks: HTTPStatus.CONFLICT,
    errors.NodeUnreachable: HTTPStatus.GATEWAY_TIMEOUT,
    errors.NodeRequestUnfinished: HTTPStatus.GATEWAY_TIMEOUT,
    errors.NodeRequestFailed: HTTPStatus.CONFLICT,
    errors.NodeRequestNotFound: HTTPStatus.NOT_FOUND,
    errors.TaskNotRunning: HTTPStatus.CONFLICT,
    errors.ScheduleNameTaken: HTTPStatus.CONFLICT,
    errors.ScheduleNotStored: HTTPStatus.CONFLICT,
    errors.TooManyLogStreams: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.RowLocked: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DatabaseUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SchemaMissing: HTTPStatus.SERVICE_UNAVAILABLE,
    file_errors.InvalidFile: HTTPStatus.UNPROCESSABLE_ENTITY,
    file_errors.FileMissing: HTTPStatus.NOT_FOUND,
    file_errors.BucketNotFound: HTTPStatus.NOT_FOUND,
    file_errors.BucketExists: HTTPStatus.CONFLICT,
    file_errors.BucketNotEmpty: HTTPStatus.CONFLICT,
    file_errors.FileClassNotFound: HTTPStatus.NOT_FOUND,
    file_errors.FileClassInUse: HTTPStatus.CONFLICT,
    file_errors.QuotaExceeded: HTTPStatus.CONFLICT,
    file_errors.FileConditionFailed: HTTPStatus.PRECONDITION_FAILED,
    file_errors.DiskNotFound: HTTPStatus.NOT_FOUND,
    file_errors.DiskHasCopies: HTTPStatus.CONFLICT,
    file_errors.DiskOfOtherNode: HTTPStatus.CONFLICT,
    file_errors.DiskIsLost: HTTPStatus.CONFLICT,
    file_errors.DiskIsOnline: HTTPStatus.CONFLICT,
    file_errors.AccessKeyNotFound: HTTPStatus.NOT_FOUND,
    file_errors.UploadGone: HTTPStatus.NOT_FOUND,
    file_errors.UploadPositionDiffers: HTTPStatus.CONFLICT,
    file_errors.DiskTakesNoMore: HTTPStatus.INSUFFICIENT_STORAGE,
    file_errors.NoClusterSecret: HTTPStatus.CONFLICT,
    file_errors.NoNodeTakes: HTTPStatus.SERVICE_UNAVAILABLE,
    file_errors.PutRefused: HTTPStatus.CONFLICT,
    file_errors.FileReplaced: HTTPStatus.CONFLICT,
    file_errors.ContentDiffers: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoSourceLeft: HTTPStatus.SERVICE_UNAVAILABLE,
    SourceFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    StorageNotInstalled: HTTPStatus.NOT_IMPLEMENTED,
    TooManyUploads: HTTPStatus.SERVICE_UNAVAILABLE,
    UploadAborted: HTTPStatus.SERVICE_UNAVAILABLE,
    NotServedByNode: HTTPStatus.NOT_FOUND,
    MetricsNotAvailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


PROBLEM_SCHEMA: Final = "#/components/schemas/ProblemDetails"


class ProblemDetails(BaseModel):
    """An error."""

    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    code: str = Field(description="The kind of error.", examples=["TaskNotFound"])
    detail: str = Field(
        description="The cause, and what to do about it.",
        examples=["there is no task 17: it was deleted or purged, or never existed"],
    )
    field: str | None = Field(None, description="The option, parameter or column at fault.", examples=["queue"])
    data: dict[str, Any] | None = Field(
        None, description="What the error was made of, for programs.", examples=[{"task_id": 17}]
    )


def documented(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for its documentation."""
    always = (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    return {
        status.value: {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": {"$ref": PROBLEM_SCHEMA}}}}
        for status in (*statuses, *always)
    }


def problem_response(
    status: HTTPStatus,
    code: str,
    detail: str,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    data: dict[str, Any] | None = None,
) -> JSONResponse:
    """An error as a response."""
    shown = escape_text(without_tokens(detail)[:MAX_DETAIL])
    problem = ProblemDetails(title=status.phrase, status=status, code=code, detail=shown, field=field, data=data)
    return JSONResponse(problem.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error as a problem."""
    app.add_exception_handler(errors.PeerdError, _of_peerd)
    app.add_exception_handler(LoginRefused, _of_login)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_defect)


async def _of_peerd(_: Request, error: Exception) -> JSONResponse:
    return error_response(error)


def error_response(error: Exception) -> JSONResponse:
    """The response for an error of peerd; any other is raised."""
    if not isinstance(error, errors.PeerdError):
        raise error
    status = status_of(error)
    if status is None:
        raise error
    headers = {"retry-after": RETRY_AFTER} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    field = getattr(error, "field", None)
    return problem_response(
        status, type(error).__name__, str(error), field, headers, data=wire_errors.error_data(error)
    )


def status_of(error: errors.PeerdError) -> HTTPStatus | None:
    """The status of an error, by the nearest of its kinds that has one."""
    return next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), None)


async def _of_login(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LoginRefused)
    headers = None if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return problem_response(error.status, error.code, str(error), headers=headers)


async def _of_validation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    [first, *others] = error.errors()
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    more = f" (and {len(others)} more)" if others else ""
    detail = f"{field}: {first['msg']}{more}"
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "InvalidRequest", detail, field)


async def _of_defect(*_: object) -> JSONResponse:
    """The text of an unexpected error may hold anything; the web process logs it. It is answered past the guard."""
    detail = "an unexpected error; the log of the web process has its traceback"
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", detail, headers=ANSWER_HEADERS)


async def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return http_problem(error)


def http_problem(error: HTTPException) -> JSONResponse:
    """The response for a request that reaches no operation."""
    status = HTTPStatus(error.status_code)
    code = type(error).__name__ if isinstance(error, BodyTooLarge) else status.phrase.replace(" ", "")
    return problem_response(status, code, str(error.detail), headers=error.headers)
