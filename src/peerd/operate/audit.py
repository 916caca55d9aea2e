"""The audit log: what was done by which actor, by which way, and what it has changed."""

from __future__ import annotations

from peerd.domain.access import Right
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.store import audit
from peerd.store.audit import AuditFilter, AuditPage, AuditTail

MAX_PAGE = 1_000


class AuditOperations(OperationGroup[Mode]):
    """``client.audit``."""

    subject = "audit"

    @operation(needs=Right.ADMIN, rest=rest("GET /audit", name="list_entries", renamed={"operation_name": "operation"}))
    def page(
        self,
        *,
        actor: str | None = None,
        operation_name: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        since: str | float | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Query[AuditPage]:
        """A page of entries, the newest first.

        Args:
            actor: the name of the user, token or program.
            operation_name: such as ``tasks.retry``.
            target_kind: such as ``task``.
            target: a name or an id.
            since: only of so many last seconds, or "1d".
            after: ``next`` of the page before.
            limit: entries at the most, 1 to 1,000.

        Raises:
            InvalidFilter: one of them cannot be.
        """
        wanted = _filter(actor, operation_name, target_kind, target, since)
        most = validation.number("limit", limit, 1, MAX_PAGE)
        return Query("read", audit.list_entries, wanted, after=validation.id_cursor(after, "the audit log"), limit=most)

    @operation(needs=Right.ADMIN)
    def newer(
        self,
        *,
        actor: str | None = None,
        operation_name: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Query[AuditTail]:
        """The first entries behind a position, the oldest first, for what follows the log.

        An entry whose transaction ends late has a smaller id than others that were read before it: what must miss none
        goes back by some ids, and leaves out those that it has.

        Args:
            actor: the name of the user, token or program.
            operation_name: such as ``tasks.retry``.
            target_kind: such as ``task``.
            target: a name or an id.
            after: ``next`` of the answer before; without it there are no entries, and ``next`` is the end of the log.
            limit: entries at the most, 1 to 1,000.

        Raises:
            InvalidFilter: one of them cannot be.
        """
        wanted = _filter(actor, operation_name, target_kind, target)
        most = validation.number("limit", limit, 1, MAX_PAGE)
        return Query("read", audit.list_newer, wanted, after=validation.id_cursor(after, "the audit log"), limit=most)


def _filter(
    actor: str | None,
    operation_name: str | None,
    target_kind: str | None,
    target: str | None,
    since: str | float | None = None,
) -> AuditFilter:
    texts = {"actor": actor, "operation": operation_name, "target_kind": target_kind, "target": target}
    return AuditFilter(
        **{field: validation.text_or_none(field, value) for field, value in texts.items()},
        since=None if since is None else validation.seconds("since", since),
    )
