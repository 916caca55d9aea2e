"""Enqueue with plain SQL, as any language can, and read the results with SQL."""

import sqlite3
import time

with sqlite3.connect("peerd.sqlite", timeout=30, isolation_level=None) as database:
    good = database.execute("INSERT INTO tasks (queue, body) VALUES ('words', 'one two three')").lastrowid
    bad = database.execute("INSERT INTO tasks (queue, max_attempts) VALUES ('words-low', 2)").lastrowid

    found = {}
    deadline = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        rows = database.execute("SELECT id, status, result, error FROM tasks WHERE status IN ('done', 'dead')")
        found = {row[0]: row[1:] for row in rows}
    print(found)
    assert found[good][:2] == ("done", '{"words":3}')
    assert found[bad][0] == "dead"
    assert "there is no text" in found[bad][2]
    attempts = database.execute("SELECT number, outcome, error FROM attempts WHERE task_id = ?", (bad,)).fetchall()
    assert len(attempts) == 2, attempts
