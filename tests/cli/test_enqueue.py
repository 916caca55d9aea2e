"""`peerd enqueue`."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Thread

import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from peerd.store.known_handlers import encode_handlers
from peerd.store.schema.tables import processes
from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess


def test_a_task_is_enqueued_with_all_its_options(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    answer = peerd(
        "enqueue", "video", "transcode", '{"source": "a.mp4"}', "--priority", "20", "--max-attempts", "5",
        "--timeout", "2h", "--unique", "a.mp4", "--unique-for", "1d", "--limit-key", "acme", "--node", "video-1",
        "--start-at", "2037-01-01T10:00:00+01:00", "--finish-at", "2037-01-02T00:00:00Z",
        "--trace-context", "00-1-2-01",
        "--json",
    ).json  # fmt: skip
    task = client.tasks.get(answer["id"])
    assert (task.queue, task.name, task.json, task.priority) == ("video", "transcode", {"source": "a.mp4"}, 20)
    assert (task.max_attempts, task.timeout, task.unique_key, task.node_id) == (5, 7200.0, "a.mp4", holder.node_id)
    assert f"{task.start_at} {task.finish_at}" == "2037-01-01 09:00:00+00:00 2037-01-02 00:00:00+00:00"
    assert (task.limit_key, task.trace_context) == ("acme", "00-1-2-01")
    assert re.search(r"limit key +acme", peerd("tasks", "show", str(task.id)).out)


def test_the_body_is_kept_as_it_was_typed_or_comes_from_stdin_or_a_file_or_is_text(
    peerd: Peerd, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00")
    bodies = []
    for words, stdin in (
        (("", '{"b": 1,  "a": 2}'), None),
        (("x", "-"), "[1]\n"),
        (("--text", "no: json"), None),
        (("--file", "body"), None),
    ):
        task = client.tasks.get(peerd("enqueue", "legacy", *words, "--json", stdin=stdin).json["id"])
        bodies.append(task.body_bytes or task.body)
    assert bodies == ['{"b": 1,  "a": 2}', "[1]", "no: json", b"\xff\x00"]


INVALID = (
    (2, ("video", "x", "NaN"), "the body is not JSON"),
    (2, ("video", "--start-at", "tomorrow"), "--start-at: 'tomorrow' is not a time"),
    (2, ("video", "--start-at", "2030-01-01T00:00:00"), "has no time zone"),
    (2, ("video", "--start-in", "soon"), "start_in: 'soon' is not a duration"),
    (2, ("video", "--wait", "--wait-for", "a while"), "--wait-for: 'a while' is not a duration"),
    (1, ("video", "--node", "nowhere"), "no node 'nowhere'"),
    (1, ("video", "--file", "missing"), "missing: no such file"),
    (2, ("video", "x", "1", "--text", "1"), "not both"),
)
"""The exit status, the words, and what is said."""


def test_invalid_values_are_refused_and_nothing_is_written(peerd: Peerd, client: Client) -> None:
    for status, words, message in INVALID:
        assert message in peerd("enqueue", *words, "--json", status=status).error["message"], words
    assert client.tasks.list() == []


def test_a_task_that_no_process_can_run_is_written_with_a_warning(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    known = encode_handlers({"video": {"transcode": {"source": ("str", True), "height": ("int", False)}}})
    client.database.run(sa.Connection.execute, sa.update(processes).values(handlers=known))
    client.enqueue("legacy")
    [warning] = re.findall(r"warning: (.*?)\. Task \d", " ".join(peerd("enqueue", "viedo", "transcode").err.split()))
    assert warning == "there is no queue 'viedo'; known are, the nearest first: video, legacy"
    takes = "transcode takes source, height (optional); given are: "
    for words, warning in (
        (("video", "transcode", '{"source": "a", "hight": 1}'), f"{takes}'hight', 'source'"),
        (("video", "transcode"), f"{takes}none"),
        (("video", "transcod", "{}"), "no process has a handler 'transcod' of this queue; known are: transcode"),
        (("video", "transcode", '{"source": "a"}'), None),
        (("legacy", "any", '{"of": "no process"}'), None),
    ):
        printed = " ".join(peerd("enqueue", *words).err.split())
        assert (f"warning: {warning}. " in printed) == (warning is not None), printed
        assert peerd("enqueue", *words, "--json").json["warning"] == warning, words


def test_a_result_is_waited_for_and_printed(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    def work() -> None:
        eventually(lambda: client.tasks.counts()[Status.PENDING])
        holder.run(Done('{"height":720}'))

    working = Thread(target=work)
    working.start()
    answer = peerd("enqueue", "video", "--wait", "--wait-for", "20s")
    working.join()
    assert answer.out == '{\n  "height": 720\n}\n'


def test_waiting_fails_when_the_task_dies_and_ends_when_the_time_is_over(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    assert "task 1 is pending in video" in peerd("enqueue", "video", "--unique", "a", "--unique-for", "forever").out
    assert "task 1 has this key already; it is pending" in peerd("enqueue", "video", "--unique", "a").out
    holder.run(Failed(error="OSError: the disk is full"))
    answer = peerd("enqueue", "video", "--unique", "a", "--wait", status=1)
    assert "error: task 1 is dead after 1 attempt: OSError: the disk is full" in answer.err
    assert "still pending" in peerd("enqueue", "video", "--wait", "--wait-for", "50ms", status=1).err
