"""Events as a stream: what viewers are sent, what they cost the database, and when a stream ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from starlette.requests import Request

from peerd import Actor, Client
from peerd.domain.alert import AlertReport
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.outcome import Done
from peerd.operate.remote.modes import ServerMode
from peerd.store.alerts import ReportAge, end_condition, record_alert
from peerd.testing import eventually
from peerd.web.streams import hub as stream_hub
from peerd.web.streams import states
from peerd.web.streams.events import MAX_PENDING, EventFilter, EventViewer
from peerd.web.streams.hub import COMPLETE, StreamHub, Viewer
from peerd.web.streams.states import EventKind, EventMessage
from tests.support.served_api import ShownApp
from tests.unit.operate.claiming_process import ClaimingProcess
from tests.web.access_world import bearer

INTERVAL = 0.05


@pytest.fixture
def hub(address: str, shown_app: ShownApp) -> StreamHub:
    hub = StreamHub(interval=INTERVAL, max_viewers=60)
    shown_app.app.state.peerd_events = hub
    return hub


@pytest.fixture
def url(address: str, hub: StreamHub) -> str:
    return f"{address}/api/v1/events"


class Stream:
    """What a viewer gets."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id: str | None = None
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event, and its data; comments are left out."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, fields[name] = line.partition(": ")
            elif "event" in fields:
                self.last_id = fields.get("id", self.last_id)
                return fields["event"], json.loads(fields["data"])
        raise EOFError

    def until(self, wanted: Callable[[dict[str, Any]], object]) -> tuple[str, dict[str, Any]]:
        """The first event with wanted data."""
        return next(event for event in iter(self.next, None) if wanted(event[1]))


@contextmanager
def watching(url: str, last_id: str | None = None, *, secret: str | None = None, **query: Any) -> Iterator[Stream]:
    headers = ({} if last_id is None else {"last-event-id": last_id}) | ({} if secret is None else bearer(secret))
    with httpx.Client(timeout=60) as http, http.stream("GET", url, params=query, headers=headers) as answer:
        yield Stream(answer)


def execute(client: Client, statement: str) -> None:
    client.database.run(sa.Connection.execute, sa.text(statement))


def test_a_viewer_gets_the_present_state_and_then_each_change(url: str, client: Client) -> None:
    with watching(url, type="task", queue="video") as stream:
        assert stream.answer.headers["x-accel-buffering"] == "no"
        assert stream.next() == ("reset", {"type": "task"})
        present = [stream.next() for _ in range(5)]
        assert [(kind, task["id"], task["status"]) for kind, task in present] == [
            ("task", str(number), "pending") for number in range(1, 6)
        ]
        assert "body" not in present[0][1]
        holder = ClaimingProcess(client.database)
        task = holder.claim()
        kind, changed = stream.next()
        assert (kind, changed["id"], changed["status"], changed["worker_node"]) == ("task", "5", "working", "video-1")
        holder.report(task, 0.5, "half")
        assert stream.next()[1]["progress_note"] == "half"
        holder.end(task, Done(result="{}"))
        assert stream.next()[1]["status"] == "done"
        client.tasks.delete(5)
        assert stream.next() == ("task", {"id": "5", "gone": True})


def test_each_task_that_a_viewer_names_is_read_however_many_there_are(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TASKS_OF_EACH_KIND", 1), ("MAX_RECENT", 2)):
        monkeypatch.setattr(states, name, value)
    named = [job.id for job in client.enqueue_many(["many"] * 9)][:7]
    with watching(url, type="task", task=named) as stream:
        assert stream.next() == ("reset", {"type": "task"})
        assert {stream.next()[1]["id"] for _ in named} == set(map(str, named))
        for task_id in named:
            client.tasks.delete(task_id)
        assert all(stream.next()[1].get("gone") for _ in named)


def test_alerts_come_on_are_reported_again_and_go(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(kind: str, subject: str, times: int = 1) -> None:
        found = AlertReport(kind=kind, subject=subject, node="video-1", text="it is so", times=times)
        client.database.run(record_alert, found, ReportAge())

    monkeypatch.setattr(states, "ALERTS_OF_EACH_KIND", 1)
    report("backlog", "video")
    with watching(url, type="alert") as stream, watching(url, type="alert", queue="video") as of_video:
        for one in (stream, of_video):
            assert [one.next()[1].get("state") for _ in range(2)] == [None, "on"]
        report("backlog", "video", 2)
        assert stream.next()[1]["times"] == of_video.next()[1]["times"] == 3
        report("hung", "video-1")
        _, hung = stream.next()
        assert (hung["kind"], hung["state"], hung["queue"]) == ("hung", "recent", None)
        client.database.run(end_condition, "backlog", "video")
        assert stream.next() == of_video.next() == ("alert", {"id": "1", "gone": True})


def test_queues_and_nodes_are_seen_to_change_and_to_go(url: str, client: Client) -> None:
    with watching(url, type=["queue", "node"]) as stream:
        assert {stream.next()[1]["type"] for _ in range(2)} == {"queue", "node"}
        assert [stream.next()[1]["name"] for _ in range(2)] == ["mail", "video"]
        client.queues.pause("video")
        kind, queue = stream.next()
        assert (kind, queue["name"], queue["paused"]) == ("queue", "video", True)
        ClaimingProcess(client.database, "short")
        assert stream.next()[1]["name"] in {"short", "video"}
        for table in ("processes", "nodes"):
            execute(client, f"DELETE FROM {table}")
        assert stream.until(lambda data: data.get("gone")) == ("node", {"name": "short", "gone": True})


def test_a_filter_by_status_tells_also_what_leaves_it(url: str, client: Client) -> None:
    with watching(url, type="task", status="pending", task=[1, 2]) as stream:
        assert [stream.next()[1].get("id") for _ in range(3)] == [None, "1", "2"]
        client.tasks.bury(3)
        client.tasks.cancel(2)
        kind, left = stream.next()
        assert (kind, left["id"], left["status"]) == ("task", "2", "canceled"), "and nothing of task 3"


def test_a_watched_task_is_read_however_old_it_is(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASKS_OF_EACH_KIND", "FOLLOWED"):
        monkeypatch.setattr(states, name, 1)
    with watching(url, type="task", task=2) as stream:
        assert [stream.next()[1].get("id") for _ in range(2)] == [None, "2"]
        client.tasks.change(2, priority=77)
        assert stream.next()[1]["priority"] == 77


def test_a_viewer_that_comes_again_gets_what_it_has_missed_or_everything(url: str, client: Client) -> None:
    with watching(url, type="queue") as first, watching(url, type="queue") as other:
        for stream in (first, other):
            stream.until(lambda data: data.get("name") == "video")
        client.queues.pause("mail")
        first.until(lambda data: data.get("paused"))
        with watching(url, other.last_id, type="queue") as again:
            kind, data = again.next()
            assert (kind, data["name"], data["paused"]) == ("queue", "mail", True), "only what is new"
        for unknown in ("", "b-7", f"{'9' * 60}"):
            with watching(url, unknown, type="queue") as anew:
                assert [anew.next()[0] for _ in range(3)] == ["reset", "queue", "queue"]
        execute(client, "DELETE FROM tasks WHERE queue = 'video'")
        first.until(lambda data: data.get("gone"))
        with watching(url, other.last_id, type="queue") as after_a_loss:
            assert after_a_loss.next() == ("reset", {"type": "queue"}), "it cannot know what is gone"


def test_viewers_of_the_same_share_a_reader_which_ends_with_the_last_of_them(url: str, hub: StreamHub) -> None:
    with ExitStack() as opened:
        streams = [opened.enter_context(watching(url)) for _ in range(5)]
        for stream in streams:
            stream.until(lambda data: "priority" in data)
        tasks = [topic._task for topic in hub.topics.values()]
        assert len(tasks) == len(EventKind)
    eventually(lambda: not hub.topics and all(one is not None and one.done() for one in tasks))


def test_no_more_than_a_number_of_streams_are_open_and_a_draining_process_takes_none(
    url: str, hub: StreamHub, client: Client
) -> None:
    hub.max_viewers = 4
    secret = client.tokens.create("another", ["view"]).secret
    with watching(url) as one, watching(url, type="node"):
        refused = httpx.get(url)
        assert (refused.status_code, refused.json()["code"]) == (503, "TooManyViewers")
        assert refused.headers["retry-after"] == "10"
        one.next()
        with watching(url, secret=secret, type="node") as of_another:
            of_another.next()
    eventually(lambda: not hub.viewers)
    with watching(url, type="queue") as stream:
        stream.until(lambda data: data.get("name") == "video")
        hub.close_all()
        assert stream.next() == ("bye", {"reason": "draining"})
        with pytest.raises(EOFError):
            stream.next()
    assert httpx.get(url).status_code == 503


def test_a_viewer_whose_rights_end_is_sent_away(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Request) -> Actor:
        raise DatabaseUnavailable("it is gone")

    tokens = [client.tokens.create("viewer", ["view"]) for _ in range(2)]
    monkeypatch.setattr(stream_hub, "RECHECK_EVERY", 0.1)
    monkeypatch.setattr(stream_hub, "KEEP_ALIVE", 0.05)
    with ExitStack() as opened:
        streams = [opened.enter_context(watching(url, secret=one.secret, type="node")) for one in tokens]
        for stream in streams:
            stream.next()
        time.sleep(3 * stream_hub.RECHECK_EVERY)
        client.tokens.revoke(tokens[0].id)
        assert streams[0].next() == ("bye", {"reason": "refused"})
        monkeypatch.setattr("peerd.web.dependencies.find_actor_again", fail)
        assert streams[1].next() == ("bye", {"reason": "refused"}), "of which nothing is known any more"


def test_a_viewer_that_does_not_read_is_dropped(
    url: str, hub: StreamHub, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventViewer, "send_within", 0.3)
    address = httpx.URL(url)
    client.enqueue_many(["big"] * 150, name="n" * 200, limit_key="k" * 200)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((address.host, address.port))
        slow.sendall(f"GET {address.path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        eventually(lambda: len(hub.viewers) == 1)
        over = threading.Event()

        def change() -> None:
            for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
                execute(client, f"UPDATE tasks SET priority = {number}")

        with ThreadPoolExecutor() as threads:
            threads.submit(change)
            try:
                eventually(lambda: not hub.viewers)
            finally:
                over.set()


def test_what_waits_for_a_viewer_is_bounded_and_a_state_replaces_an_earlier_one() -> None:
    viewer = EventViewer(EventFilter())
    for number in range(3 * MAX_PENDING):
        viewer.offer(EventMessage(EventKind.QUEUE, "mail", "", number=number))
    assert ([message.number for message in viewer.take_messages()], viewer.end) == ([3 * MAX_PENDING - 1], None)
    for number in range(MAX_PENDING + 1):
        viewer.offer(EventMessage(EventKind.QUEUE, str(number), "", number=number))
    assert viewer.end == "slow"


async def test_a_complete_stream_ends_after_what_was_found_last_and_another_at_once() -> None:
    class Waiting(Viewer):
        opening, comment, send_within, farewell = b"open", b"", 1.0, b"bye"
        pending = b"one"

        async def take(self) -> bytes:
            taken, self.pending = self.pending, b""
            return taken

    async def is_allowed() -> bool:
        return True

    for reason, rest in ((COMPLETE, [b"two", b"bye"]), ("draining", [b"bye"])):
        viewer = Waiting()
        viewer.news.set()
        events = stream_hub.EventStream(StreamHub(), viewer, is_allowed).body_iterator
        assert [await anext(aiter(events)) for _ in range(2)] == [b"open", b"one"]
        viewer.pending = b"two"
        viewer.close(reason)
        assert [part async for part in events] == rest


def test_a_database_that_is_away_ends_no_stream(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    away = threading.Event()
    read, tries = client.database.read, []

    def read_unless_away(*args: Any, **kwargs: Any) -> Any:
        if away.is_set():
            tries.append(1)
            raise DatabaseUnavailable("gone")
        return read(*args, **kwargs)

    monkeypatch.setattr(client.database, "read", read_unless_away)
    with watching(url, type="queue") as stream:
        stream.until(lambda data: data.get("name") == "video")
        away.set()
        eventually(lambda: len(tries) > 2)
        assert httpx.get(url, params={"type": "node"}).status_code == 503, "of a topic that has no reader yet"
        away.clear()
        client.queues.pause("mail")
        assert stream.next()[1]["paused"]


def test_a_wrong_query_is_refused_and_a_silent_stream_lives(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_hub, "KEEP_ALIVE", 0.05)
    with watching(url, type="node") as stream:
        lines = stream.answer.iter_lines()
        assert [line for line, _ in zip(lines, range(9), strict=False)].count(": ") >= 2
    wrong: tuple[Any, ...] = {"type": "tusk"}, {"task": list(range(1, 200))}, {"stauts": "a"}, {"queue": "no spaces"}
    for query in wrong:
        assert httpx.get(url, params=query).status_code == 422, query


def test_a_client_iterates_over_events_and_comes_again(url: str, client: Client, hub: StreamHub) -> None:
    with Client(url.removesuffix("/api/v1/events")) as remote:
        events = iter(remote.events("queue"))
        assert [next(events).type for _ in range(3)] == ["reset", "queue", "queue"]
        [viewer] = hub.viewers
        viewer.close("slow")
        client.queues.pause("mail")
        event = next(events)
        while event.type == "reset" or not event.data.get("paused"):
            event = next(events)
        assert event.data["name"] == "mail"

        async def first() -> str:
            return (await anext(aiter(remote.aio.events("task", tasks=[1])))).type

        assert asyncio.run(first()) == "reset"
        events.close()  # type: ignore[attr-defined]
    eventually(lambda: not hub.viewers)


def test_a_client_comes_again_until_the_database_of_the_server_is_there(
    url: str, hub: StreamHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([DatabaseUnavailable("it is gone"), DatabaseUnavailable("it is gone")])
    join = hub.join

    async def join_later(*given: Any) -> None:
        for error in tries:
            raise error
        await join(*given)

    with Client(url.removesuffix("/api/v1/events")) as remote:
        events = iter(remote.events("node"))
        assert next(events).type == "reset"
        monkeypatch.setattr(hub, "join", join_later)
        [viewer] = hub.viewers
        viewer.close("refused")
        assert next(event for event in events if event.type == "reset").data == {"type": "node"}
        events.close()  # type: ignore[attr-defined]


def test_streams_take_no_threads_from_the_operations_of_their_client(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerMode, "threads", 1)

    async def watch_and_ask(remote: Client) -> None:
        events = [remote.aio.events("queue", queues=["none"]) for _ in range(2)]
        assert [(await anext(one)).type for one in events] == ["reset", "reset"]
        waiting = [asyncio.ensure_future(anext(one)) for one in events]
        assert (await asyncio.wait_for(remote.aio.tasks.get(1), 10)).id == 1
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)

    with Client(url.removesuffix("/api/v1/events")) as remote:
        asyncio.run(watch_and_ask(remote))
