from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from peerd import Context, Status, Task
from peerd.workers import video as handlers
from peerd.workers.video.errors import DiskFull, MediaDamaged, MediaRefused, ToolLacks, VideoError
from peerd.workers.video.jobs import probe, transcode
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe_output import parse_probe
from tests.video.media_helpers import RecordingContext, make_clip, output_of, remuxed, run_ffmpeg, work_in_progress


def look_at(tools: FfmpegTools, path: Path) -> Media:
    """What ffprobe, asked by the test itself, says of an output."""
    command = [tools.ffprobe, "-v", "error", "-show_streams", "-show_format", "-of", "json", str(path)]
    return parse_probe(output_of(*command))


def picture_of(tools: FfmpegTools, path: Path) -> VideoStream:
    return look_at(tools, path).video or pytest.fail("no picture")


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
    assert found.audio is not None
    assert (found.audio.codec, found.audio.channels) == ("aac", 2)
    assert work_in_progress(directory) == []
    fractions = [fraction for fraction, _ in context.reports]
    assert [0.0, *sorted(fractions[1:-1]), 1.0] == fractions
    assert any(0 < fraction < 0.9 for fraction in fractions)


@pytest.mark.slow
async def test_an_output_has_an_even_size_no_larger_than_the_source_and_no_faster_than_wanted(directory: Path) -> None:
    table: list[tuple[Path, dict[str, Any], tuple[int, int], int]] = [
        (make_clip(directory / "odd.mkv", "-c:v", "ffv1", size="321x181"), {}, (320, 180), 50),
        (make_clip(directory / "fast.mp4", rate=100), {"max_fps": 30}, (320, 180), 60),
        (make_clip(directory / "tv.mpg", *INTERLACED, rate=50), {}, (320, 180), 50),
    ]
    for source, wanted, size, frames in table:
        result, _ = await transcoded(directory, source, **wanted)
        assert (result["width"], result["height"]) == size, source
        assert abs(result["frames"] - frames) <= 1, source


DEEP = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p10le")
INTERLACED = ("-c:v", "mpeg2video", "-flags", "+ilme+ildct", "-top", "1", "-c:a", "mp2", "-vf", "interlace")


@pytest.mark.slow
async def test_a_rotated_source_is_turned_upright_once(directory: Path, tools: FfmpegTools) -> None:
    content = make_clip(directory / "upright.mp4").read_bytes()
    # The track's matrix (ISO 14496-12, tkhd): identity, replaced by a quarter turn. Versions of ffmpeg differ in
    # how they write one, not in how they read it.
    one, none, depth = (0x10000).to_bytes(4, "big"), bytes(4), (0x40000000).to_bytes(4, "big")
    minus = (-0x10000).to_bytes(4, "big", signed=True)
    identity = one + none * 3 + one + none * 3 + depth
    quarter = none + one + none + minus + none * 4 + depth
    where = content.index(identity, content.index(b"tkhd"))
    source = directory / "phone.mp4"
    source.write_bytes(content[:where] + quarter + content[where + len(identity) :])
    assert abs(picture_of(tools, source).rotation) == 90
    _, made = await transcoded(directory, source)
    found = picture_of(tools, made)
    assert (found.width, found.height, found.rotation) == (180, 320, 0)


@pytest.mark.slow
async def test_a_stretched_picture_of_ten_bits_gets_square_pixels_of_eight(directory: Path, tools: FfmpegTools) -> None:
    source = make_clip(directory / "dv.mkv", *DEEP, "-vf", "setsar=64/45", size="720x576")
    _, made = await transcoded(directory, source)
    found = picture_of(tools, made)
    assert (found.width, found.height, found.sample_aspect, found.pixel_format) == (1024, 576, Fraction(1), "yuv420p")


@pytest.mark.slow
async def test_a_source_without_sound_has_none_after(directory: Path, tools: FfmpegTools) -> None:
    result, made = await transcoded(directory, make_clip(directory / "mute.mp4", sound=False))
    assert (result["audio_codec"], look_at(tools, made).audio) == (None, None)


@pytest.mark.slow
async def test_a_varying_frame_rate_keeps_each_frame_and_its_time(directory: Path, tools: FfmpegTools) -> None:
    # as a phone in the dark: of 25 frames a second all, then each third
    source = make_clip(directory / "phone.mp4", "-vf", "select='lt(t,2)+not(mod(n,3))'", "-fps_mode", "vfr", seconds=4)
    _, made = await transcoded(directory, source)
    before, after = times_of(tools, source), times_of(tools, made)
    assert len(before) < 80
    assert after == pytest.approx(before, abs=0.001)


@pytest.mark.slow
async def test_a_trimmed_source_gives_what_players_show(bunny: Path, directory: Path) -> None:
    run_ffmpeg("-ss", "2.3", "-i", bunny, "-c", "copy", directory / "trimmed.mp4")  # an edit list hides 58 frames
    result, _ = await transcoded(directory, directory / "trimmed.mp4")
    assert result["duration"] == pytest.approx(3.01, abs=0.1)
    assert result["frames"] == pytest.approx(74, abs=1)


WEBM = ("-deadline", "realtime", "-auto-alt-ref", "1", "-lag-in-frames", "10", "-c:a", "libopus")


@pytest.mark.slow
async def test_other_containers_and_codecs_are_understood(directory: Path) -> None:
    for name, *codecs in (
        ("a.avi", "-c:v", "mpeg4", "-c:a", "mp2"),
        ("a.ts", "-c:v", "mpeg2video", "-c:a", "mp2"),
        ("a.webm", "-c:v", "libvpx", *WEBM),
        ("a.flv", "-c:v", "flv1", "-c:a", "aac", "-ar", "44100"),
        ("a.mov", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-c:a", "pcm_s16le"),
    ):
        result, _ = await transcoded(directory, make_clip(directory / name, *codecs))
        assert (result["video_codec"], result["audio_codec"]) == ("h264", "aac")
        assert abs(result["frames"] - 50) <= 2, name


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


@pytest.mark.slow
async def test_high_dynamic_range_is_mapped_or_the_lack_is_reported(directory: Path, tools: FfmpegTools) -> None:
    # said twice: newer versions take it from the pictures, older ones from the encoder's options
    marked = ("-vf", "setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc")
    hdr = (*marked, "-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc")
    source = make_clip(directory / "hdr.mkv", *DEEP, *hdr, seconds=1)
    if "zscale" in tools.filters:
        _, made = await transcoded(directory, source)
        found = picture_of(tools, made)
        assert (found.transfer, found.pixel_format) == ("bt709", "yuv420p")
    else:
        with pytest.raises(ToolLacks, match="zscale"):
            await transcoded(directory, source)


def times_of(tools: FfmpegTools, path: Path) -> list[float]:
    shown = ("-select_streams", "v", "-show_entries", "frame=pts_time", "-of", "csv=p=0")
    return [float(line.strip(b",")) for line in output_of(tools.ffprobe, "-v", "error", *shown, path).split()]


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
