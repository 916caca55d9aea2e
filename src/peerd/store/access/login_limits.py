"""Limits of failed logins, which hold over all processes and nodes.

Each attempt is counted as a failure before its password is compared, so that guesses at the same time are counted too;
a success takes it back. Three counts limit an attempt, each within `WINDOW`: of its name from its address, of its name
from any address, and of its address for any name. The last two are larger, and do not hold for an address from which
the user has logged in before: strangers cannot lock a user out of the usual place.
"""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.access.sessions import purge_older
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import login_failures
from peerd.store.tasks.rows import insert_if_absent

WINDOW: Final = 900.0
"""Seconds."""
MOST_OF_PAIR: Final = 10
MOST_OF_NAME: Final = 100
MOST_OF_ADDRESS: Final = 100
KEPT: Final = 30 * 86_400.0
"""Seconds for which an address is remembered."""


def count_attempt(connection: Connection, name: str, address: str | None) -> bool:
    """Count an attempt; whether it is allowed. One that is not is not counted."""
    pair, of_name, of_address = _keys(name, address)
    ids = sorted((pair, of_name, of_address))
    insert_if_absent(connection, login_failures, [{"id": one} for one in ids], key=("id",))
    is_over = login_failures.c.began_at <= seconds_from_now(-WINDOW)
    columns = (login_failures.c.id, login_failures.c.failures, login_failures.c.succeeded_at, is_over.label("is_over"))
    statement = sa.select(*columns).where(login_failures.c.id.in_(ids)).order_by(login_failures.c.id)
    rows = {row.id: row for row in connection.execute(statement.with_for_update())}
    failures = {one: 0 if rows[one].is_over else rows[one].failures for one in ids}
    is_usual = rows[pair].succeeded_at is not None
    if failures[pair] >= MOST_OF_PAIR:
        return False
    if not is_usual and (failures[of_name] >= MOST_OF_NAME or failures[of_address] >= MOST_OF_ADDRESS):
        return False
    begins = sa.case((is_over, now()), else_=login_failures.c.began_at)
    for one in ids:
        statement_of = sa.update(login_failures).where(login_failures.c.id == one)
        connection.execute(statement_of.values(failures=failures[one] + 1, began_at=begins))
    return True


def record_success(connection: Connection, name: str, address: str | None) -> None:
    """Take back the count of an attempt that succeeded, and remember its address."""
    pair, *others = _keys(name, address)
    for one in sorted((pair, *others)):
        mine = sa.update(login_failures).where(login_failures.c.id == one)
        if one == pair:
            connection.execute(mine.values(failures=0, began_at=now(), succeeded_at=now()))
        else:
            connection.execute(mine.where(login_failures.c.failures > 0).values(failures=login_failures.c.failures - 1))


def purge_login_failures(connection: Connection, limit: int) -> int:
    """Delete counts that are no longer used."""
    return purge_older(connection, login_failures, login_failures.c.began_at, KEPT, limit)


def network_of(address: str | None) -> str:
    """The part of an address that one holder has: of IPv6, the first 64 bits.

    >>> network_of("2001:db8::1"), network_of("::ffff:10.0.0.7"), network_of("10.0.0.7"), network_of(None)
    ('2001:db8::/64', '10.0.0.7', '10.0.0.7', '')
    """
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return address or ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


def _keys(name: str, address: str | None) -> tuple[str, str, str]:
    """The ids of the three counts: digests, because a name that is tried may be a password by mistake."""
    network = network_of(address)
    parts = (("pair", name, network), ("name", name, ""), ("address", "", network))
    pair, of_name, of_address = (blake2b("\0".join(one).encode(), digest_size=16).hexdigest() for one in parts)
    return pair, of_name, of_address
