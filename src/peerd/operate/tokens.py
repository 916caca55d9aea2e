"""Tokens of the API, for programs."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from peerd.domain.access import Right, parse_scopes
from peerd.domain.errors import InvalidAccess, InvalidFilter, InvalidTask
from peerd.domain.file_errors import InvalidFile
from peerd.domain.quoting import quoted
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.operate.users import new_name
from peerd.store import tokens
from peerd.store.audit import State, token_state
from peerd.store.tokens import ApiToken, NewToken

MAX_EXPIRY = 10 * 365 * 86_400.0
"""Seconds."""
MOST_QUEUES = 1_000
TokenList = list[ApiToken]


class TokenOperations(OperationGroup[Mode]):
    """``client.tokens``."""

    subject = "tokens"

    @operation(needs=Right.ADMIN, rest=rest("GET /tokens", name="list_tokens"))
    def list(self) -> Query[TokenList]:
        """All tokens, the newest first; also those that have expired or were revoked."""
        return Query("read", tokens.list_tokens)

    @operation(needs=Right.ADMIN, rest=rest("POST /tokens", status=HTTPStatus.CREATED))
    def create(
        self,
        name: str,
        rights: Collection[Right | str],
        *,
        queues: Collection[str] | None = None,
        file_scopes: Collection[str] | None = None,
        expires_in: str | float | None = None,
    ) -> Query[NewToken]:
        """Create a token. Its secret is in the result, and nowhere else.

        Args:
            name: what it is for; several tokens may have one name.
            rights: of ``view``, ``enqueue``, ``operate``, ``read-files``, ``write-files`` and ``admin`` at least one.
            queues: those that it is restricted to; None: it is not. With them, it has no right to administer, and of
                files only those of ``file_scopes``.
            file_scopes: BUCKET or BUCKET/PREFIX, where the bucket may end with ``*``: the files that it is restricted
                to; None: it is not.
            expires_in: seconds, or "90d"; None: never.

        Raises:
            InvalidAccess: one of them cannot be.
        """
        given, restricted_to = _parse_rights(rights), _parse_queues(queues)
        if restricted_to is not None and Right.ADMIN in given:
            raise InvalidAccess("queues", "a token with the right admin cannot be restricted to queues")
        scopes = _parse_file_scopes(file_scopes, given, is_of_queues=restricted_to is not None)
        seconds = None if expires_in is None else _parse_expiry(expires_in)
        query = Query("run", tokens.create_token, new_name(name), given, restricted_to, seconds, scopes)
        return query.making("token", _describe)

    @operation(needs=Right.ADMIN, rest=rest("DELETE /tokens/{token_id}", answer="nothing"))
    def revoke(self, token_id: int) -> Query[None]:
        """Revoke a token at once; raises `TokenNotFound`."""
        number = validation.number("token", token_id, 1)
        return Query("run", tokens.revoke_token, number).acting_on("token", number, token_state, number)


def _describe(made: NewToken) -> tuple[str, State]:
    """The state of a new token: all but its secret."""
    fields = ("name", "rights", "queues", "file_scopes", "expires_at")
    return str(made.id), {field: getattr(made, field) for field in fields}


def _parse_rights(rights: Collection[Right | str]) -> frozenset[Right]:
    try:
        parsed = frozenset(map(Right, [rights] if isinstance(rights, str) else rights))
    except (TypeError, ValueError):
        raise InvalidAccess("rights", f"{quoted(rights)} is not a list of {', '.join(Right)}") from None
    if not parsed:
        raise InvalidAccess("rights", f"there are none; give some of {', '.join(Right)}")
    return parsed


def _parse_queues(queues: Collection[str] | None) -> frozenset[str] | None:
    if queues is None:
        return None
    if isinstance(queues, str) or not 0 < len(queues) <= MOST_QUEUES:
        raise InvalidAccess("queues", f"give 1 to {MOST_QUEUES} names of queues, or leave it out")
    try:
        return frozenset(map(validation.queue, queues))
    except InvalidFilter as error:
        raise InvalidAccess("queues", error.problem) from None


def _parse_file_scopes(
    scopes: Collection[str] | None, rights: frozenset[Right], *, is_of_queues: bool
) -> tuple[str, ...] | None:
    of_files = rights & {Right.READ_FILES, Right.WRITE_FILES}
    if scopes is None:
        if is_of_queues and of_files:
            raise InvalidAccess("file_scopes", "a token of some queues needs them for its rights on files")
        return None
    if not of_files:
        raise InvalidAccess("file_scopes", "the token has neither the right read-files nor write-files")
    if Right.ADMIN in rights:
        raise InvalidAccess("file_scopes", "a token with the right admin cannot be restricted to files")
    try:
        return parse_scopes("file_scopes", scopes)
    except InvalidFile as error:
        raise InvalidAccess("file_scopes", error.problem) from None


def _parse_expiry(expires_in: str | float) -> float:
    try:
        seconds = validation.seconds("expires_in", expires_in)
    except InvalidTask as error:
        raise InvalidAccess("expires_in", error.problem) from None
    if not 0 < seconds <= MAX_EXPIRY:
        raise InvalidAccess("expires_in", "must be more than nothing, and at most ten years")
    return seconds
