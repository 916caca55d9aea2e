"""Errors as pages: what is wrong, and where to go from here."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.quoting import without_tokens
from peerd.web.access.authentication import AccessRefused
from peerd.web.pages.forms import FormRefused
from peerd.web.pages.rendering import PageRequest
from peerd.web.problems import MAX_DETAIL, STATUS_OF

HOME = (("Overview", "/"),)


def error_page(page: PageRequest, error: PeerdError | FormRefused | AccessRefused) -> Response:
    """The page of an error."""
    status = error_status(error)
    detail = without_tokens(str(error))[:MAX_DETAIL]
    heading = "The database does not answer" if isinstance(error, DatabaseUnavailable) else heading_of(status)
    return page.render("error.html", heading, status, heading=heading, detail=detail, ways=HOME)


def plain_error_page(page: PageRequest, status: HTTPStatus, detail: str) -> Response:
    """The page of an error that is none of peerd's own."""
    heading = heading_of(status)
    return page.render("error.html", heading, status, heading=heading, detail=detail, ways=HOME)


def error_status(error: PeerdError | FormRefused | AccessRefused) -> HTTPStatus:
    """The status of an error's page; an error of an unknown kind is raised again."""
    if isinstance(error, FormRefused | AccessRefused):
        return error.status
    for kind in type(error).__mro__:
        if kind in STATUS_OF:
            return STATUS_OF[kind]
    raise error


def heading_of(status: HTTPStatus) -> str:
    """What a status means, for a person.

    >>> heading_of(HTTPStatus.NOT_FOUND), heading_of(HTTPStatus.CONFLICT)
    ('Not found', 'Conflict')
    """
    return status.phrase.capitalize()
