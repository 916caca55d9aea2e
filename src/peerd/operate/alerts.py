"""Alerts: which are on, and which were raised lately."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.alert import AlertKind
from peerd.domain.errors import InvalidFilter
from peerd.domain.quoting import Masker, quoted
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.store.alerts import AlertFilter, AlertPage, AlertRecord, list_alerts

MAX_PAGE = 1_000


class AlertOperations(OperationGroup[Mode]):
    """``client.alerts``."""

    subject = "alerts"

    @operation(in_queues=True, rest=rest("GET /alerts", name="list_alerts", renamed={"kinds": "kind"}))
    def list(
        self,
        *,
        on: bool | None = None,
        kinds: Collection[str] | None = None,
        since: str | float | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Query[AlertPage]:
        """A page of alerts, the newest first; an actor of some queues gets those that are about them.

        Args:
            on: only conditions that are on, such as a backlog; False: only all others.
            kinds: only of these, such as ``backlog``.
            since: only those that were seen in so many last seconds, or "1d".
            after: ``next`` of the page before.
            limit: alerts at the most, 1 to 1,000.

        Raises:
            InvalidFilter: one of them cannot be.
        """
        wanted = AlertFilter(
            on=_flag(on),
            kinds=None if kinds is None else _known(kinds),
            since=None if since is None else validation.seconds("since", since),
            queues=self._actor.queues,
        )
        most = validation.number("limit", limit, 1, MAX_PAGE)
        cursor = validation.id_cursor(after, "alerts")
        return Query("read", _read_page, wanted, cursor, most, self._masker)


def _flag(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidFilter("on", f"{quoted(value)} is not true or false")
    return value


def _known(kinds: Collection[str]) -> tuple[str, ...]:
    """The kinds; raises `InvalidFilter` for one that does not exist."""
    if isinstance(kinds, str) or not kinds:
        raise InvalidFilter("kinds", f"{quoted(kinds)} is no list of kinds")
    known = [kind.value for kind in AlertKind if kind not in {AlertKind.RECOVERED, AlertKind.TEST}]
    for kind in kinds:
        if kind not in known:
            raise InvalidFilter("kinds", f"{quoted(kind)} is none of {', '.join(known)}")
    return tuple(sorted({str(kind) for kind in kinds}))


def _read_page(
    connection: Connection, wanted: AlertFilter, after: int | None, limit: int, masker: Masker | None
) -> AlertPage:
    page = list_alerts(connection, wanted, after=after, limit=limit)
    if masker is None:
        return page

    def mask(alert: AlertRecord) -> AlertRecord:
        return msgspec.structs.replace(alert, text=masker.text(alert.text), data=masker.value(alert.data))

    return msgspec.structs.replace(page, items=[mask(alert) for alert in page.items])
