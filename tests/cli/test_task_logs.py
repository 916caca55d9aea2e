from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.cli import following
from peerd.operate.client import Client
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.line_insert import LoggedLine
from peerd.store.tasks.log_lines import write_lines
from tests.cli.conftest import Peerd

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
FORGED = "\x1b[2Jall gone\n03:04:05.678 info     app: a forged line \u202e"


def write(client: Client, task_id: int, numbers: Sequence[int], lease: int = 1, **values: Any) -> None:
    rows = []
    for number in numbers:
        given: dict[str, Any] = {
            "at": AT,
            "level": "info",
            "logger": "app",
            "message": f"line {number}",
            "fields": None,
        } | values
        rows.append(LoggedLine(task_id=task_id, lease=lease, sequence=number, attempt=lease, **given))
    client.database.run(write_lines, rows)


def test_lines_are_shown_attempt_by_attempt_with_their_gaps(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    assert peerd("tasks", "logs", str(task_id)).lines == ["no lines"]
    write(client, task_id, [0, 1, 7])
    write(client, task_id, [0], lease=2, level="error", fields='{"size": 3, "path": "a\\nb"}')
    assert peerd("tasks", "logs", str(task_id)).lines == [
        "attempt 1 (lease 1)",
        "03:04:05.678 info     app: line 0",
        "03:04:05.678 info     app: line 1",
        "… 5 lines were not kept",
        "03:04:05.678 info     app: line 7",
        "attempt 2 (lease 2)",
        "03:04:05.678 error    app: line 0 size=3 path=a\\nb",
    ]
    assert len(peerd("tasks", "logs", str(task_id), "--attempt", "2").lines) == 2
    assert len(peerd("tasks", "logs", str(task_id), "--level", "warning").lines) == 2
    peerd("tasks", "logs", str(task_id), "--level", "loud", status=2)
    assert "there is no task 99" in peerd("tasks", "logs", "99", status=1).err


def test_hostile_lines_neither_control_the_terminal_nor_look_like_others(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    write(client, task_id, [0], message=FORGED, logger="a\nb", fields='{"a\\nb\\u001b": "\\u001b[1m"}')
    for words in (("logs",), ("show",)):
        out = peerd("tasks", *words, str(task_id)).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[2Jall gone" in out
        assert [line for line in out.splitlines() if "a forged line" in line] == [
            "    03:04:05.678 info     app: a forged line \\u202e"
        ]
    out = peerd("tasks", "logs", str(task_id), "--json").out
    assert "\x1b" not in out
    assert json.loads(out)["message"] == FORGED
    assert json.loads(out)["cursor"] == "1-0"


def test_following_ends_with_the_task(peerd: Peerd, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = client.enqueue("mail").id
    write(client, task_id, range(following.PAGE + 10))

    def go_on(seconds: float) -> None:
        """When all that is there was read."""
        write(client, task_id, [following.PAGE + 10])
        ended = {"status": "done", "finished_at": seconds_from_now(-60)}
        client.database.run(
            lambda connection: connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(ended)).rowcount
        )

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=go_on))
    lines = peerd("tasks", "logs", str(task_id), "--follow", "--json").lines
    assert [json.loads(line)["sequence"] for line in lines] == list(range(following.PAGE + 11))


def test_show_has_the_last_lines_of_the_latest_attempt(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    assert "log lines" not in peerd("tasks", "show", str(task_id)).out
    write(client, task_id, range(3))
    write(client, task_id, range(9), lease=2)
    lines = peerd("tasks", "show", str(task_id)).lines
    start = lines.index("log lines: 12, the last of attempt 2")
    assert [line.split()[-1] for line in lines[start + 1 : start + 6]] == ["4", "5", "6", "7", "8"]
    assert peerd("tasks", "show", str(task_id), "--json").json["log_lines"] == 12
