"""Markup, escape sequences, marks of direction and large texts in every field that others can fill."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from typing import Final

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.store.schema.tables import metadata
from tests.pages.addresses import ADDRESSES, ASK_A_NODE
from tests.pages.test_pages import parse

MARKUP: Final = "</script></pre><script>hit()</script><img src=x onerror=hit()>\"' onload='hit()"
EVIL: Final = f"{MARKUP} \u202egnp.exe \u2066x \x00 \x1b[31m \x7f \ud83d{{{{7*7}}}} %s \r\n\t"
FORBIDDEN: Final = ("<script>hit", "<img src=x", "\u202e", "\u2066", "\x1b", "\x00", "\x7f", "49 %s")
TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "tasks": ("name", "error", "result", "body", "progress_note", "unique_key", "limit_key", "trace_context"),
    "attempts": ("error", "traceback", "cause"),
    "task_logs": ("message", "fields", "logger"),
    "nodes": ("address", "zone", "version"),
    "processes": ("cause", "slot", "kind"),
    "schedule_runs": ("error", "traceback"),
    "schedules": ("error",),
    "alerts": ("text", "subject", "node", "slot"),
    "bulk_actions": ("error", "created_by"),
    "files": ("class_name", "content_type", "file_key", "etag", "blake3"),
    "file_checks": ("blocked", "health"),
    "disks": ("path", "url", "problem", "walked_for"),
    "peerd_audit": ("actor", "target", "problem", "address"),
    "node_requests": ("error", "result", "requested_by"),
}


def write_everywhere(client: Client, text: str) -> set[str]:
    """Write a text into the columns that take it; return their names."""
    written: set[str] = set()
    for table_name, columns in TEXTS.items():
        table = metadata.tables[table_name]
        for name in columns:
            column = table.c[name]
            length = getattr(column.type, "length", None) or len(text)
            value = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")[:length]
            change = sa.update(table).values({name: value})
            if name == "unique_key":
                change = change.where(table.c.id == 1)
            with suppress(sa.exc.IntegrityError):  # the table itself refuses it
                client.database.run(sa.Connection.execute, change)
                written.add(f"{table_name}.{name}")
    return written


@pytest.mark.parametrize("text", [EVIL, MARKUP * 12_000], ids=["evil", "one megabyte"])
def test_no_text_of_others_is_markup_on_any_page(visitor: httpx.Client, client: Client, text: str) -> None:
    written = write_everywhere(client, text)
    assert len(written) > 25, written
    for route in sorted(ADDRESSES.keys() - ASK_A_NODE - {"/tasks/find", "/tasks/export.{form:str}"}):
        answer = visitor.get(ADDRESSES[route])
        assert answer.status_code in {200, 404} or route == "/login", (route, answer.text[:500])
        if not answer.headers.get("content-type", "").startswith("text/html"):
            assert answer.status_code == 303 or answer.headers["content-disposition"].startswith("attachment"), route
            continue
        parse(answer)
        for part in FORBIDDEN:
            assert part not in answer.text, (route, part)
        assert len(answer.text) < 1_000_000, route


FIELDS: Final = """
    /: span by; /tasks: status queue name node search where column after size; /queues/show: name span;
    /alerts: kind shown after; /audit: actor operation target key since after; /bulk/new: queue verb where;
    /login: next; /tasks/find: q; /limits/remove: name scope key; /files/list: bucket prefix after view;
    /files/list?bucket=films: prefix after view; /files/show: name; /files/download: name; /storage: health after;
    /tasks/1/cancel: back reason
"""
"""Fields of addresses."""


@pytest.mark.slow
def test_no_text_of_an_address_is_markup(visitor: httpx.Client) -> None:
    values = EVIL.replace("\x00", "").encode("utf-8", "replace").decode(), "x" * 6_000, "' OR 1=1 --%00", "../../etc"
    for value, fields in itertools.product(values, FIELDS.split(";")):
        path, _, names = fields.strip().partition(": ")
        for name in names.split():
            answer = visitor.get(path, params={name: value})
            assert answer.status_code in {200, 303, 400, 404, 409, 422}, (path, name, answer.text[:300])
            if answer.status_code == 303:
                assert re.match("/(?![/\\\\])", answer.headers["location"]), (path, name)
                continue
            parse(answer)
            shown = re.sub(r'value="[^"]*"', "", answer.text)  # a field holds what was typed into it
            for part in FORBIDDEN:
                assert part not in shown, (path, name, part)


def test_an_id_that_is_none_is_not_found(visitor: httpx.Client) -> None:
    for key in ("-1", "99999999999999999999", "1e3", "%00", "１", "1%2f2"):
        for path in (f"/tasks/{key}", f"/tasks/{key}/cancel", f"/bulk/{key}", f"/disks/{key}"):
            assert visitor.get(path).status_code == 404, path


def test_names_with_markup_have_addresses(visitor: httpx.Client) -> None:
    links = [link for link in parse(visitor.get("/nodes")).links if link.startswith("/nodes/show")]
    assert [visitor.get(link).status_code for link in links] == [200]
