"""Users, tokens and the audit log: for admins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from peerd.domain.access import Right
from peerd.domain.errors import InvalidAccess, NotPermitted
from peerd.domain.task import NAME_LIMIT
from peerd.store.audit import AuditEntry, AuditPage
from peerd.web.pages.actions import FormField
from peerd.web.pages.addresses import Subject
from peerd.web.pages.rendering import PageRequest, status_with, unless_invalid

TOKEN_FIELDS: Final = (
    FormField("name", "Name", is_required=True, most=NAME_LIMIT, hint="What it is for"),
    *(FormField(f"right-{right}", right.value, kind="switch") for right in Right),
    FormField("queues", "Queues", hint="Names with spaces between them; empty: all"),
    FormField("file_scopes", "Files", hint="BUCKET or BUCKET/PREFIX, one a line; empty: all", kind="long"),
    FormField("expires_in", "Expires in", kind="duration", hint="Such as 90d; empty: never"),
)
AUDIT_FILTERS: Final = ("actor", "operation", "target", "key", "since")
TARGET_PAGES: Final = {
    "task": Subject.TASK,
    "queue": Subject.QUEUE,
    "node": Subject.NODE,
    "schedule": Subject.SCHEDULE,
    "bulk": Subject.BULK,
}


async def show_users(page: PageRequest) -> Response:
    """All users."""
    users = await page.client.users.list()
    return page.render("users.html", "Users", users=users, creating=page.actions.of(Subject.USER, page.actor, "add"))


async def show_tokens(page: PageRequest) -> Response:
    """All tokens."""
    tokens = await page.client.tokens.list()
    return page.render("tokens.html", "Tokens", tokens=tokens)


async def new_token(page: PageRequest, values: Mapping[str, str] | None = None, problem: str | None = None) -> Response:
    """The form for another token."""
    _require_admin(page)
    return page.render(
        "token_new.html", "New token", status_with(problem), fields=TOKEN_FIELDS, values=values or {}, problem=problem
    )


def _require_admin(page: PageRequest) -> None:
    if not page.actor.may(Right.ADMIN):
        raise NotPermitted(page.actor.name, "tokens.create", f"it needs the right {Right.ADMIN}")


async def create_token(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Create it, and show its secret once: it is in this answer, and nowhere else."""
    given = dict(fields)
    rights = [right.value for right in Right if f"right-{right}" in given]
    queues = given.get("queues", "").split() or None
    file_scopes = [line.strip() for line in given.get("file_scopes", "").splitlines() if line.strip()] or None
    expires_in = given.get("expires_in", "").strip() or None
    try:
        made = await page.client.tokens.create(
            given.get("name", ""), rights, queues=queues, file_scopes=file_scopes, expires_in=expires_in
        )
    except (InvalidAccess, NotPermitted) as error:
        return await new_token(page, given, str(error))
    return page.render("token_made.html", "Token", HTTPStatus.CREATED, made=made)


async def show_audit(page: PageRequest) -> Response:
    """A page of the audit log."""
    given = {name: page.query.get(name) for name in AUDIT_FILTERS}
    load = partial(
        page.client.audit.page,
        actor=given["actor"],
        operation_name=given["operation"],
        target_kind=given["target"],
        target=given["key"],
        since=given["since"],
        after=page.query.get("after"),
    )
    found, problem = await unless_invalid(load, AuditPage(items=[], next=None))
    return page.render(
        "audit.html",
        "Audit log",
        status_with(problem),
        entries=[(entry, target_address(entry), _json(entry)) for entry in found.items],
        next=found.next,
        given=given,
        problem=problem,
    )


def target_address(entry: AuditEntry) -> str | None:
    """The page of what an entry is about."""
    subject = TARGET_PAGES.get(entry.target_kind or "")
    if subject is None or not entry.target or (subject.has_id and not entry.target.isdecimal()):
        return None
    return subject.page(entry.target)


def _json(entry: AuditEntry) -> dict[str, str]:
    parts: dict[str, Any] = {"Arguments": entry.arguments, "Before": entry.before, "After": entry.after}
    return {
        label: json.dumps(value, ensure_ascii=False, indent=1)[:4_000]
        for label, value in parts.items()
        if value is not None
    }
