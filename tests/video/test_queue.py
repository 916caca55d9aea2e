"""The handlers as peerd runs them: a JSON body, the context of peerd, and its rules for retries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from peerd import Context, InvalidArguments, Status, Task
from peerd.workers.video import poster, probe, transcode, video
from peerd.workers.video.errors import DiskFull, MediaDamaged, MediaRefused, VideoError


def every_kind(kind: type[VideoError]) -> set[type[VideoError]]:
    return {kind}.union(*(every_kind(child) for child in kind.__subclasses__()))


def test_the_queue_has_its_three_handlers() -> None:
    assert video.name == "video"
    assert set(video.handlers) == {"probe", "transcode", "poster"}
    assert all(handler.kind == "coroutine" for handler in video.handlers.values())


def test_a_body_written_by_hand_is_a_complete_call() -> None:
    arguments = transcode.arguments.decode('{"source": "a.mp4"}')
    assert arguments["source"] == "a.mp4"
    assert (arguments["height"], arguments["quality"], arguments["audio"]) == (720, "standard", True)
    call = transcode.with_args("a.mp4", height=480, audio=False)
    assert (call.queue, call.name) == ("video", "transcode")
    assert json.loads(call.body or "") == {"source": "a.mp4", "height": 480, "audio": False}
    for body in ("{}", '{"source": 7}', '{"source": "a", "height": "x"}', '{"source": "a", "f": 1}'):
        with pytest.raises(InvalidArguments):
            transcode.arguments.decode(body)


def test_what_the_source_is_at_fault_for_is_dead_at_once_the_rest_is_retried_and_each_shows_a_remedy() -> None:
    for handler in (probe, transcode, poster):
        assert not handler.retries(MediaDamaged(source="a", reason="b"))
        assert handler.retries(DiskFull(directory="/"))
        assert handler.retries(OSError())
    for kind in every_kind(VideoError) - {VideoError}:
        assert kind.remedy
        assert issubclass(kind, MediaRefused) == (not transcode.retries(kind.__new__(kind)))


async def test_a_handler_runs_with_the_context_of_peerd(bunny: Path, directory: Path) -> None:
    reports: list[float] = []
    now = datetime(2030, 1, 1, tzinfo=UTC)
    known: dict[str, Any] = {"id": 7, "queue": "video", "name": "transcode", "status": Status.WORKING, "lease": 1}
    counts = {"attempts": 0, "crashes": 0, "priority": 10}
    unknown: dict[str, Any] = dict.fromkeys(Task.__struct_fields__)
    context = Context(
        Task(**{**unknown, **known, **counts, "created_at": now, "updated_at": now}),
        node="n",
        options={"directory": str(directory)},
        report=lambda progress: reports.append(progress.fraction or 0.0),
    )
    arguments = transcode.arguments.decode('{"source": "bunny.mp4", "height": 180, "quality": "draft"}')
    result = await transcode(context, **arguments)
    assert result["output"] == "bunny-180p.mp4"
    assert json.loads(json.dumps(result)) == result
    assert (reports[0], reports[-1]) == (0.0, 1.0)
