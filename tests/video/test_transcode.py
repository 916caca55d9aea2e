from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from peerd import Context, Status, Task
from peerd.workers import video as handlers
from peerd.workers.video.errors import DiskFull, MediaDamaged, MediaRefused, VideoError
from peerd.workers.video.formats import CODECS
from peerd.workers.video.jobs import probe, transcode
from peerd.workers.video.media import Media
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe_output import parse_probe
from peerd.workers.video.streams import choose_streams
from tests.video.media_helpers import RecordingContext, make_clip, output_of, remuxed, work_in_progress


def look_at(tools: FfmpegTools, path: Path) -> Media:
    """What ffprobe, asked by the test itself, says of an output."""
    command = [tools.ffprobe, "-v", "error", "-show_streams", "-show_format", "-of", "json", str(path)]
    return choose_streams(parse_probe(output_of(*command)), CODECS)


async def transcoded(directory: Path, source: Path, **arguments: Any) -> tuple[dict[str, Any], Path]:
    arguments = {"quality": "draft", "replace": True, **arguments}
    result = await transcode(RecordingContext(directory), source.name, "out.mp4", **arguments)
    return result, directory / "out.mp4"


async def test_a_real_clip_becomes_a_verified_mp4(bunny: Path, directory: Path, tools: FfmpegTools) -> None:
    context = RecordingContext(directory)
    result = await transcode(context, "bunny.mp4", height=360, quality="draft")
    made = directory / "bunny.mp4-360p.mp4"
    found = look_at(tools, made)
    assert (result["output"], result["width"], result["height"]) == ("bunny.mp4-360p.mp4", 640, 360)
    assert (result["frames"], result["video_codec"], result["audio_codec"]) == (132, "h264", "aac")
    assert result["duration"] == pytest.approx(5.312, abs=0.1)
    assert result["size"] == made.stat().st_size
    assert result["sha256"] == hashlib.sha256(made.read_bytes()).hexdigest()
    assert (result["ffmpeg"], result["decode_errors"], result["damage"]) == (tools.version, 0, None)
    assert found.video is not None
    assert (found.video.width, found.video.height, found.video.frames) == (640, 360, 132)
    assert [(sound.codec, sound.channels) for sound in found.audio] == [("aac", 2)]
    assert work_in_progress(directory) == []
    fractions = [fraction for fraction, _ in context.reports]
    assert [0.0, *sorted(fractions[1:-1]), 1.0] == fractions
    assert any(0 < fraction < 0.9 for fraction in fractions)


@pytest.mark.slow
async def test_nothing_private_of_the_source_is_in_the_output(directory: Path) -> None:
    tags = ("-metadata", "location=+48.85+002.35/", "-metadata", "comment=secret")
    tagged = remuxed(make_clip(directory / "plain.mp4"), directory / "tagged.mp4", *tags)
    _, made = await transcoded(directory, tagged)
    found = [[private in path.read_bytes() for private in (b"secret", b"loci")] for path in (tagged, made)]
    assert found == [[True, True], [False, False]]


async def test_probe_describes_a_file(bunny: Path, directory: Path) -> None:
    found = await probe(RecordingContext(directory), "bunny.mp4")
    assert found["duration"] == pytest.approx(5.312)
    assert (found["video"]["width"], found["video"]["height"], found["video"]["frame_rate"]) == (1280, 720, 25.0)
    assert found["audio"] == {"codec": "aac", "channels": 6, "sample_rate": 48000}
    assert work_in_progress(directory) == []


def every_kind(kind: type[VideoError]) -> set[type[VideoError]]:
    return {kind}.union(*(every_kind(child) for child in kind.__subclasses__()))


def test_what_the_source_is_at_fault_for_is_dead_at_once_the_rest_is_retried_and_each_shows_a_remedy() -> None:
    for handler in (handlers.probe, handlers.transcode, handlers.poster):
        assert not handler.retries(MediaDamaged(source="a", reason="b"))
        assert handler.retries(DiskFull(directory="/"))
        assert handler.retries(OSError())
    for kind in every_kind(VideoError) - {VideoError}:
        assert kind.remedy
        assert issubclass(kind, MediaRefused) == (not handlers.transcode.retries(kind.__new__(kind)))


async def test_a_handler_runs_with_the_context_of_peerd(bunny: Path, directory: Path) -> None:
    reports: list[float] = []
    now = datetime(2030, 1, 1, tzinfo=UTC)
    known: dict[str, Any] = {"id": 7, "queue": "video", "name": "transcode", "status": Status.WORKING, "lease": 1}
    known |= {"attempts": 0, "failures": 0, "crashes": 0, "priority": 10, "created_at": now, "updated_at": now}
    task = Task(**{**dict.fromkeys(Task.__struct_fields__), **known})
    options = {"directory": str(directory)}
    context = Context(task, node="n", options=options, report=lambda one: reports.append(one.fraction or 0.0))
    arguments = handlers.transcode.arguments.decode('{"source": "bunny.mp4", "height": 180, "quality": "draft"}')
    result = await handlers.transcode(context, **arguments)
    assert result["output"] == "bunny.mp4-180p.mp4"
    assert json.loads(json.dumps(result)) == result
    assert (reports[0], reports[-1]) == (0.0, 1.0)
