"""The text of the column `trace_context`: W3C's `traceparent`, and after a space its `tracestate`, if there is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MAX_TEXT: Final = 512
"""Characters of the column."""
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def format_trace_context(headers: Mapping[str, str]) -> str | None:
    """The text for the headers of a propagator; None without a traceparent.

    Of a tracestate that is too long, the members at its end are left out, as W3C has it.

    >>> format_trace_context({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"})
    '00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01 vendor=1'
    """
    traceparent = headers.get("traceparent", "")
    if _TRACEPARENT.fullmatch(traceparent) is None:
        return None
    members = [member for member in headers.get("tracestate", "").split(",") if member.strip()]
    while members and len(traceparent) + 1 + len(",".join(members)) > MAX_TEXT:
        members.pop()
    return f"{traceparent} {','.join(members)}" if members else traceparent


def parse_trace_context(text: str | None) -> dict[str, str]:
    """The headers for a propagator; none of what is no trace context: any program may have written it.

    >>> parse_trace_context(f"00-{'a' * 32}-{'b' * 16}-01 vendor=1")["tracestate"], parse_trace_context("garbage")
    ('vendor=1', {})
    """
    traceparent, _, tracestate = (text or "").partition(" ")
    if _TRACEPARENT.fullmatch(traceparent) is None:
        return {}
    return {"traceparent": traceparent} | ({"tracestate": tracestate} if tracestate else {})
