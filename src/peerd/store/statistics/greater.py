"""An INSERT of rows that keeps the greater values of rows that are there already.

Numbers that only grow may be written so any number of times, late, in any order and by several nodes at once.
"""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy.engine import Connection


def placeholder_of(connection: Connection) -> str:
    """How the driver marks a parameter in the text of a statement."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


@lru_cache(maxsize=16)
def upsert_of_greater(table: str, key: tuple[str, ...], values: tuple[str, ...], dialect: str) -> tuple[str, str]:
    """The statement's text before and behind its rows. A value that is null gives way to any other.

    >>> upsert_of_greater("t", ("id",), ("n",), "sqlite")[1]
    'ON CONFLICT (id) DO UPDATE SET n = COALESCE(MAX(t.n, excluded.n), t.n, excluded.n)'
    """
    head = f"INSERT INTO {table} ({', '.join((*key, *values))}) VALUES"
    function = "MAX" if dialect == "sqlite" else "GREATEST"

    def greater(name: str) -> str:
        old, new = f"{table}.{name}", f"VALUES({name})" if dialect == "mysql" else f"excluded.{name}"
        return f"{name} = COALESCE({function}({old}, {new}), {old}, {new})"

    kept = ", ".join(greater(name) for name in values)
    if dialect == "mysql":
        return head, f"ON DUPLICATE KEY UPDATE {kept}"
    return head, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {kept}"
