"""Hostile files and names. None of them may read, fetch, or fill anything."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from peerd import ResourceLimits
from peerd.workers.video import errors
from peerd.workers.video.jobs import poster, probe, transcode
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.program import Program
from peerd.workers.video.timeline import PacketReader
from tests.video.media_helpers import RecordingContext, files_in, held_below, make_clip, output_of, run_ffmpeg


async def assert_refused(directory: Path, name: str, kind: type[errors.MediaRefused] = errors.MediaRefused) -> None:
    before = files_in(directory)
    for handler in (probe, transcode, poster):
        with pytest.raises(kind):
            await handler(RecordingContext(directory), name)
    assert files_in(directory) == before
    assert held_below(directory) == []


BELOW = "name a file below the media directory"
NAMES = {
    "": BELOW,
    " ": BELOW,
    "/etc/passwd": BELOW,
    "../secret.mp4": BELOW,
    "a/../b.mp4": BELOW,
    "..": BELOW,
    ".": BELOW,
    "a\0.mp4": "use a name without them",
    "\ud800.mp4": "rename it in UTF-8",
    "é" * 600: "use a shorter name",
}
OUTPUTS = {
    **NAMES,
    "out.sh": "end it in .mp4",
    "out": "end it in .mp4",
    "a\nb.mp4": "use a name without them",
    "a\x9b2J.mp4": "use a name without them",
    ".hidden.mp4": "use names without a leading dot",
    ".peerd-video/x.mp4": "use names without a leading dot",
    "folder.mp4": "name a file in it",
    "clip.mp4/out.mp4": "name a folder in which the worker's user may write",
    "é" * 130 + ".mp4": "use a shorter name",
}


async def test_names_that_lead_out_and_outputs_without_a_plain_name_are_refused(clip: Path, directory: Path) -> None:
    make_clip(directory.parent / "secret.mp4", seconds=1)
    (directory / "folder.mp4").mkdir()
    for name, remedy in NAMES.items():
        for output in (None, "out.mp4"):
            with pytest.raises(errors.PathRefused, match=f" is refused as source, .*: {remedy}"):
                await transcode(RecordingContext(directory), name, output)
    for output, remedy in list(OUTPUTS.items())[1:]:
        with pytest.raises(errors.PathRefused, match=f" is refused as output, .*: {re.escape(remedy)}") as refused:
            await transcode(RecordingContext(directory), "clip.mp4", output)
        assert str(refused.value).isprintable()
    with pytest.raises(errors.SourceMissing):  # it may still come
        await transcode(RecordingContext(directory), "coming.mp4")


async def test_a_source_may_have_any_name_and_where_its_output_may_not_the_task_names_one(directory: Path) -> None:
    for name, reason in (("a\n\x1b[2J\tb.mp4", "it has control characters"), ("x" * 251 + ".mp4", "255 bytes")):
        source = make_clip(directory / name, seconds=1)
        for handler in (transcode, poster):
            expected = rf"\.(mp4|jpg)' is refused as default output, because .*{reason}: name one with output="
            with pytest.raises(errors.PathRefused, match=expected) as refused:
                await handler(RecordingContext(directory), name)
            assert str(refused.value).isprintable()
        assert (await poster(RecordingContext(directory), name, "out.jpg", replace=True))["source"] == name
        source.write_bytes(b"no video")
        with pytest.raises(errors.MediaUnreadable) as damaged:
            await poster(RecordingContext(directory), name, "out.jpg", replace=True)
        assert str(damaged.value).isprintable()


async def test_a_link_that_leads_out_is_refused_and_one_within_followed(clip: Path, directory: Path) -> None:
    (directory / "link.mp4").symlink_to(make_clip(directory.parent / "secret.mp4", seconds=1))
    (directory / "folder").symlink_to(directory.parent)
    wrong = ("link.mp4", "out.mp4"), ("folder/secret.mp4", "out.mp4"), ("clip.mp4", "folder/out.mp4")
    for source, output in (*wrong, ("clip.mp4", "folder/new/out.mp4")):
        with pytest.raises(errors.PathRefused, match="link"):
            await transcode(RecordingContext(directory), source, output)
    assert {path.name for path in files_in(directory.parent)}.isdisjoint({"out.mp4", "new"})
    (directory / "within.mp4").symlink_to("clip.mp4")
    for inside in ("within.mp4", str(clip)):
        assert (await probe(RecordingContext(directory), inside))["video"]["codec"] == "h264"


async def test_an_output_never_replaces_its_source(clip: Path, directory: Path) -> None:
    content = (directory / "clip.mp4").read_bytes()
    (directory / "same.mp4").hardlink_to(clip)
    (directory / "link.mp4").symlink_to(clip)
    for output in ("clip.mp4", "same.mp4", "link.mp4"):
        for source in ("clip.mp4", "link.mp4"):
            with pytest.raises(errors.PathRefused, match=rf"{output}.*the source itself"):
                await transcode(RecordingContext(directory), source, output, replace=True)
    assert [(directory / name).read_bytes() for name in ("clip.mp4", "same.mp4", "link.mp4")] == [content] * 3


async def test_an_output_replaces_no_other_file_unless_its_task_says_so(clip: Path, directory: Path) -> None:
    phone = make_clip(directory / "clip.MOV", size="160x90", seconds=1)
    made = [(await poster(RecordingContext(directory), name))["output"] for name in ("clip.mp4", "clip.MOV")]
    assert made == ["clip.mp4-poster.jpg", "clip.MOV-poster.jpg"]
    upload = directory / "clip.MOV-720p.mp4"
    upload.write_bytes(b"an upload of this name")
    (directory / "link.mp4").symlink_to("nowhere.mp4")
    before = files_in(directory)
    for output in (None, "link.mp4"):
        context = RecordingContext(directory)
        with pytest.raises(errors.OutputExists, match=rf"{output or upload.name}.* exists already: .*replace=true"):
            await transcode(context, phone.name, output)
        assert context.reports == [], "it is refused before the work"
    assert (upload.read_bytes(), files_in(directory)) == (b"an upload of this name", before)
    result = await transcode(RecordingContext(directory), phone.name, quality="draft", replace=True)
    assert (result["output"], result["size"]) == (upload.name, upload.stat().st_size)


async def test_very_many_packets_are_counted_without_filling_the_processor() -> None:
    command = ["sh", "-c", "yes 0,0.04,0.04,0.04,K__ | head -n 300000"]
    counter = PacketReader(Media(format="mov", size=1, videos=(VideoStream(0, "h264", 2, 2),)))
    waits = 0

    def count_waits(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        nonlocal waits
        waits += 1
        return asyncio.Task(coroutine, loop=loop, **more)

    asyncio.get_running_loop().set_task_factory(count_waits)
    async with Program(command, ResourceLimits(), doing="testing", source="x") as program:
        async for line in program.lines(silence=60, within=60):
            counter.add(line)
    assert counter.spans[0].frames == 300_000
    assert 10 * waits < 300_000, "a wait for each line takes eight times as long"


@pytest.mark.slow
async def test_a_poster_of_a_large_picture_needs_little_memory(directory: Path) -> None:
    make_clip(directory / "large.mp4", size="3840x2160", seconds=1.2, sound=False)
    result = await poster(RecordingContext(directory, max_memory="500MiB", threads=1), "large.mp4")
    assert (result["width"], result["height"]) == (1280, 720)


LIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n"
MPD = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet><Representation id="0">'
    "<BaseURL>http://127.0.0.1:{port}/a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>"
)
TEXTS = (
    LIST.format("http://127.0.0.1:{port}/a.ts"),
    "ffconcat version 1.0\nfile other.mp4\n",
    LIST.format("concat:http://127.0.0.1:{port}/a|/etc/passwd"),
    "ffconcat version 1.0\nfile http://127.0.0.1:{port}/a.mp4\n",
    MPD,
    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
    "1\n00:00:01,000 --> 00:00:02,000\nnot a video\n",
    "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:{port}/a.png'/></svg>",
)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("film.mp4", TEXTS[:2]),
        pytest.param("film.mp4", TEXTS, marks=pytest.mark.slow),
        pytest.param("film.m3u8", TEXTS, marks=pytest.mark.slow),
    ],
    ids=["few", "film", "list"],
)
async def test_a_text_that_names_other_files_is_refused(directory: Path, name: str, texts: tuple[str, ...]) -> None:
    make_clip(directory / "other.mp4", seconds=1)  # a stranger's video beside it
    with socket.create_server(("127.0.0.1", 0)) as internal:
        for text in texts:
            (directory / name).write_text(text.replace("{port}", str(internal.getsockname()[1])))
            await assert_refused(directory, name)
        internal.setblocking(False)
        with pytest.raises(BlockingIOError):  # who connects has been fooled
            internal.accept()


async def test_what_is_no_media_is_refused(directory: Path) -> None:
    (directory / "empty.mp4").touch()
    (directory / "noise.mp4").write_bytes(random.Random(7).randbytes(50_000))
    os.mkfifo(directory / "pipe.mp4")  # who opens it, waits
    for name, kind in (
        ("empty.mp4", errors.SourceEmpty),
        ("noise.mp4", errors.MediaUnreadable),
        ("pipe.mp4", errors.PathRefused),
    ):
        await assert_refused(directory, name, kind)


@pytest.mark.slow
async def test_media_without_a_moving_picture_are_refused(directory: Path) -> None:
    make_clip(directory / "picture.bmp", "-c:v", "bmp", "-frames:v", "1", sound=False).rename(directory / "picture.mp4")
    await assert_refused(directory, "picture.mp4")
    make_clip(directory / "song.mp4", "-vn", "-c:v", "copy")
    await assert_refused(directory, "song.mp4", errors.FormatRefused)


async def test_a_codec_that_is_not_listed_is_refused_until_the_options_accept_it(directory: Path) -> None:
    make_clip(directory / "a.mkv", "-c:v", "tiff", "-pix_fmt", "rgb24", seconds=0.4, sound=False)
    await assert_refused(directory, "a.mkv", errors.FormatRefused)
    result = await transcode(RecordingContext(directory, codecs=["tiff", "no_such"]), "a.mkv", quality="draft")
    assert result["frames"] == 10
    with pytest.raises(errors.Misconfigured, match="codecs"):
        await probe(RecordingContext(directory, codecs="tiff"), "a.mkv")


async def test_a_limit_ends_the_work_and_names_its_option(bunny: Path, directory: Path) -> None:
    limits: dict[str, Any] = {"max_source": 1000, "max_duration": 1, "max_output": 4096, "max_wall": 0.3}
    for name, limit in {**limits, "max_pixels": 50_000, "max_packets": 100}.items():
        with pytest.raises(errors.MediaTooLarge, match=name):
            await transcode(RecordingContext(directory, **{name: limit}), "bunny.mp4", quality="draft")
        assert files_in(directory) == [bunny]
    for handler in (probe, poster):
        with pytest.raises(errors.MediaTooLarge, match="max_pixels"):
            await handler(RecordingContext(directory, max_pixels=50_000), "bunny.mp4")


@pytest.mark.slow
async def test_limits_hold_for_what_no_header_contains(bunny: Path, directory: Path, tools: FfmpegTools) -> None:
    with pytest.raises(errors.MediaRefused):
        await transcode(RecordingContext(directory, max_memory="150MiB"), "bunny.mp4")
    assert files_in(directory) == [bunny]
    endless = directory / "endless.mkv"
    endless.write_bytes(output_of(tools.ffmpeg, "-v", "error", "-i", bunny, "-c", "copy", "-f", "matroska", "-"))
    with pytest.raises(errors.MediaTooLarge, match="max_duration"):
        await transcode(RecordingContext(directory, max_duration="2s"), "endless.mkv")
    result = await transcode(RecordingContext(directory), "endless.mkv", "out.mp4", quality="draft")
    assert result["frames"] == 132


async def test_an_invalid_request_is_refused_before_its_source_is_read(directory: Path) -> None:
    """And an argument never becomes an option of ffmpeg."""
    requests: list[dict[str, Any]] = [{"height": 0}, {"height": 10**9}, {"max_fps": -1}, {"quality": "-f lavfi"}]
    for wrong in requests:
        with pytest.raises(errors.RequestRefused):
            await transcode(RecordingContext(directory), "coming.mp4", **wrong)
    for wrong in ({"at": -1.0}, {"at": float("nan")}, {"height": 15}):
        with pytest.raises(errors.RequestRefused):
            await poster(RecordingContext(directory), "coming.mp4", **wrong)


@pytest.mark.slow
async def test_subtitles_and_a_cover_are_let_by_and_left_out(clip: Path, directory: Path, tools: FfmpegTools) -> None:
    (directory / "words.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x64", "-frames:v", "1", directory / "cover.jpg")
    inputs = ("-i", clip, "-i", directory / "words.srt", "-i", directory / "cover.jpg", "-map", "0", "-map", "1")
    for container, codec in (("mp4", "mov_text"), ("mkv", "ass")):
        kinds = ("-map", "2", "-c", "copy", "-c:s", codec, "-disposition:v:1", "attached_pic")
        run_ffmpeg(*inputs, *kinds, directory / f"film.{container}")
        await transcode(RecordingContext(directory), f"film.{container}", f"{container}.mp4", quality="draft")
        shown = ("-show_entries", "stream=codec_name", "-of", "csv=p=0", directory / f"{container}.mp4")
        assert output_of(tools.ffprobe, "-v", "error", *shown).split() == [b"h264", b"aac"]
