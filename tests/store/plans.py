"""The statements that an operation sends, and the indexes by which a database executes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from peerd.store.connection.database import Database
from peerd.store.statements import DriverConnection, DriverResult

SentStatements = list[tuple[str, Any]]


@contextmanager
def recorded_statements(database: Database) -> Iterator[SentStatements]:
    """The statements that are sent meanwhile."""
    sent: SentStatements = []

    def record(_: object, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:  # noqa: FBT001
        sent.append((statement, parameters[0] if many else parameters))

    execute = DriverConnection.exec_driver_sql

    def record_and_execute(connection: DriverConnection, sql: str, arguments: Any) -> DriverResult:
        sent.append((sql, arguments))
        return execute(connection, sql, arguments)

    for engine in database.engines.distinct():
        sa.event.listen(engine, "before_cursor_execute", record)
    DriverConnection.exec_driver_sql = record_and_execute  # type: ignore[method-assign, assignment]
    try:
        yield sent
    finally:
        DriverConnection.exec_driver_sql = execute  # type: ignore[method-assign]
        for engine in database.engines.distinct():
            sa.event.remove(engine, "before_cursor_execute", record)


def analyze(database: Database, *tables: str) -> None:
    """Let the database count the rows of tables, by which it chooses its plans."""
    words = {"mysql": "ANALYZE TABLE"}.get(database.name, "ANALYZE")
    for table in tables:
        database.run(_execute, f"{words} {table}")


def _execute(connection: sa.Connection, statement: str) -> None:
    connection.exec_driver_sql(statement).close()


def explain(
    database: Database, statement: str, parameters: Any, engine: sa.Engine | None = None
) -> Sequence[Mapping[Any, Any]]:
    """The plan of a statement, in the rows that the database gives."""
    words = {"sqlite": "EXPLAIN QUERY PLAN", "mysql": "EXPLAIN FORMAT=TRADITIONAL"}.get(database.name, "EXPLAIN")
    with (engine or database.engine).connect() as connection:
        rows = connection.exec_driver_sql(f"{words} {statement}", parameters).mappings().all()
        connection.rollback()
    return rows


def plan_of(
    database: Database, statement: str, parameters: Any, engine: sa.Engine | None = None
) -> tuple[set[str], list[str]]:
    """The indexes by which a statement reaches `tasks`, and the plan as the database prints it."""
    rows = explain(database, statement, parameters, engine)
    words = [" ".join(str(value) for value in row.values()) for row in rows]
    match database.name:
        case "mysql":
            reached = {
                str(row["key"]) if row["type"] not in ("ALL", "index") else f"{row['type']}: the whole table"
                for row in rows
                if row["table"] == "tasks"
            }
            if any("const table" in str(row["Extra"]) for row in rows):
                reached.add("PRIMARY")  # one row was looked up, and no longer meets the condition
            if any(re.search("optimized away|min/max", str(row["Extra"])) for row in rows):
                reached |= set(re.findall(r"FORCE INDEX \((\w+)\)", statement))  # one entry was looked up
            if any("filesort" in str(row["Extra"]) for row in rows if row["table"] == "tasks"):
                reached.add("a sort of all")
        case "postgresql":
            text = "\n".join(words)
            reached = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+) on tasks", text))
            reached |= set(re.findall(r"Bitmap Index Scan on (tasks_\w+)", text))
            reached |= {"Seq Scan" for _ in re.findall(r"Seq Scan on tasks", text)}
        case _:
            reached = set()
            for line in words:
                if found := re.search(
                    r"(SCAN|SEARCH) (?:tasks|job)(?: USING (?:COVERING )?INDEX (\w+)| USING (INTEGER PRIMARY KEY))?",
                    line,
                ):
                    reached.add(found[2] or found[3] or "SCAN")
    return {"PRIMARY" if name in ("tasks_pkey", "INTEGER PRIMARY KEY") else name for name in reached}, words


def problems_of_plans(
    database: Database, operation: Callable[[], object], *tables: str, may_sort: bool = False
) -> list[str]:
    """The statements of an operation that read one of these large tables from end to end, or sort all for a few."""
    with recorded_statements(database) as sent:
        operation()
    problems, checked = [], 0
    for statement, parameters in sent:
        if not re.match(r"[\s(]*(WITH|SELECT|UPDATE|DELETE)\b", statement) or not _names(statement, tables):
            continue
        checked += 1
        rows = explain(database, statement, parameters)
        found = [table for row in rows if (table := _read_whole(database, row)) in tables]
        if not may_sort and statement.count(" LIMIT ") == 1 and any(_names(str(row), tables) for row in rows):
            found += ["a sort of all" for row in rows if SORTS[database.name] in str(row)]
        if found:
            problems.append(f"{found}: {statement}\n" + "\n".join(str(dict(row)) for row in rows))
    assert checked, sent
    return problems


SORTS = {"mysql": "filesort", "postgresql": "Sort Key", "sqlite": "USE TEMP B-TREE FOR ORDER BY"}


def _names(text: str, tables: tuple[str, ...]) -> bool:
    return any(re.search(rf"\b{table}\b", text) for table in tables)


def _read_whole(database: Database, row: Mapping[Any, Any]) -> str | None:
    """The table that a row of a plan reads from end to end."""
    if database.name == "mysql":
        return str(row["table"]) if row["type"] in ("ALL", "index") else None
    text, pattern = (
        (str(row["QUERY PLAN"]), r"Seq Scan on (\w+)")
        if database.name == "postgresql"
        else (str(row["detail"]), r"SCAN (\w+)")
    )
    found = re.search(pattern, text)
    return found[1] if found else None


def check(
    database: Database, operation: Callable[[], object], expected: set[str], engine: sa.Engine | None = None
) -> None:
    with recorded_statements(database) as sent:
        operation()
    checked = 0
    for statement, parameters in sent:
        if not re.match(r"[\s(]*(WITH|SELECT|UPDATE|DELETE)\b", statement) or not re.search(r"\btasks\b", statement):
            continue
        checked += 1
        reached, plan = plan_of(database, statement, parameters, engine)
        shown = f"{statement}\n" + "\n".join(plan)
        assert reached, f"no table is reached:\n{shown}"
        assert reached <= expected, f"by {reached}, not by {expected}:\n{shown}"
        if database.name == "sqlite":
            assert sum("TEMP B-TREE" in line for line in plan) <= 1, shown
    assert checked, sent
