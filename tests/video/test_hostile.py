"""Hostile files and names. None of them may read, fetch, or fill anything."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peerd import ResourceLimits
from peerd.workers.video.errors import (
    FormatRefused,
    MediaRefused,
    MediaTooLarge,
    MediaUnreadable,
    PathRefused,
    RequestRefused,
    SourceEmpty,
    SourceMissing,
)
from peerd.workers.video.jobs import poster, probe, transcode
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe_output import PacketCounter
from peerd.workers.video.programs.program import Program
from tests.video.attacks import tiny_samples
from tests.video.media_helpers import RecordingContext, files_in, held_below, make_clip, output_of, run_ffmpeg


@pytest.fixture
def internal() -> Iterator[socket.socket]:
    """A server that only this machine should reach: who connects has been fooled."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def assert_nobody_called(server: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        server.accept()


async def assert_refused(directory: Path, name: str, kind: type[MediaRefused] = MediaRefused) -> None:
    before = files_in(directory)
    for handler in (probe, transcode, poster):
        with pytest.raises(kind):
            await handler(RecordingContext(directory), name)
    assert files_in(directory) == before
    assert held_below(directory) == []


LIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n"
MPD = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet><Representation id="0">'
    "<BaseURL>http://127.0.0.1:{port}/a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>"
)
FEW_TEXTS = LIST.format("http://127.0.0.1:{port}/a.ts"), "ffconcat version 1.0\nfile other.mp4\n"
TEXTS = (
    *FEW_TEXTS,
    LIST.format("file:///etc/passwd"),
    LIST.format("concat:http://127.0.0.1:{port}/a|/etc/passwd"),
    "ffconcat version 1.0\nfile http://127.0.0.1:{port}/a.mp4\n",
    MPD,
    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
    "1\n00:00:01,000 --> 00:00:02,000\nnot a video\n",
    "hello, this is a text\n" * 100,
    "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:{port}/a.png'/></svg>",
)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("film.mp4", FEW_TEXTS),
        pytest.param("film.mp4", TEXTS, marks=pytest.mark.slow),
        pytest.param("film.m3u8", TEXTS, marks=pytest.mark.slow),
    ],
    ids=["few", "film", "list"],
)
async def test_a_text_that_names_other_files_is_refused(
    directory: Path, internal: socket.socket, name: str, texts: tuple[str, ...]
) -> None:
    make_clip(directory / "other.mp4", seconds=1)  # a stranger's video beside it
    for text in texts:
        (directory / name).write_text(text.replace("{port}", str(internal.getsockname()[1])))
        await assert_refused(directory, name)
    assert_nobody_called(internal)


@pytest.mark.slow
async def test_a_quicktime_file_that_points_elsewhere_brings_nothing_in(directory: Path) -> None:
    # MOV's external data reference ('alis'/'url '), which may name another file
    make_clip(directory / "clip.mov", seconds=1)
    content = (directory / "clip.mov").read_bytes().replace(b"url \x00\x00\x00\x01", b"url \x00\x00\x00\x00")
    (directory / "outside.mov").write_bytes(content)
    result = await probe(RecordingContext(directory), "outside.mov")
    assert result["video"]["codec"] == "h264"


async def test_what_is_no_media_is_refused(directory: Path) -> None:
    (directory / "empty.mp4").touch()
    await assert_refused(directory, "empty.mp4", SourceEmpty)
    (directory / "noise.mp4").write_bytes(os.urandom(50_000))
    await assert_refused(directory, "noise.mp4", MediaUnreadable)
    os.mkfifo(directory / "pipe.mp4")  # who opens it, waits
    await assert_refused(directory, "pipe.mp4", PathRefused)


@pytest.mark.slow
async def test_media_that_are_no_video_of_a_listed_codec_are_refused(directory: Path) -> None:
    make_clip(directory / "picture.bmp", "-c:v", "bmp", "-frames:v", "1", sound=False)
    (directory / "picture.bmp").rename(directory / "picture.mp4")
    await assert_refused(directory, "picture.mp4")
    make_clip(directory / "stills.mov", "-c:v", "qtrle", sound=False)
    await assert_refused(directory, "stills.mov", FormatRefused)
    make_clip(directory / "song.mp4", "-vn", "-c:v", "copy")
    await assert_refused(directory, "song.mp4", FormatRefused)
    clip = make_clip(directory / "clip.mp4", seconds=1)
    second = ("-i", clip, "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=5:duration=1", "-map", "0", "-map", "1:v")
    run_ffmpeg(*second, "-c", "copy", "-c:v:1", "qtrle", directory / "two.mov")
    for handler in (probe, transcode, poster):  # nor does a stream open a decoder that nobody has asked for
        with pytest.raises(FormatRefused, match="codec qtrle of one of its streams"):
            await handler(RecordingContext(directory), "two.mov")


async def test_a_picture_with_too_many_pixels_is_refused(clip: Path, directory: Path) -> None:
    for handler in (probe, transcode, poster):
        with pytest.raises(MediaTooLarge, match="max_pixels"):
            await handler(RecordingContext(directory, max_pixels=50_000), "clip.mp4")


async def test_a_limit_ends_the_work_and_names_its_option(bunny: Path, directory: Path) -> None:
    options: list[dict[str, Any]] = [{"max_source": 1000}, {"max_duration": 1}, {"max_output": 4096}, {"max_wall": 0.3}]
    for option in options:
        with pytest.raises(MediaTooLarge, match=next(iter(option))):
            await transcode(RecordingContext(directory, **option), "bunny.mp4", quality="draft")
        assert files_in(directory) == [bunny]


@pytest.mark.slow
async def test_limits_hold_for_what_no_header_contains_and_for_memory(
    bunny: Path, clip: Path, directory: Path, tools: FfmpegTools
) -> None:
    before = files_in(directory)
    with pytest.raises(MediaRefused):
        await transcode(RecordingContext(directory, max_memory="150MiB"), "bunny.mp4")
    assert files_in(directory) == before
    endless = directory / "endless.mkv"
    endless.write_bytes(output_of(tools.ffmpeg, "-v", "error", "-i", bunny, "-c", "copy", "-f", "matroska", "-"))
    with pytest.raises(MediaTooLarge, match="max_duration"):
        await transcode(RecordingContext(directory, max_duration="2s"), "endless.mkv")
    (directory / "many.mp4").write_bytes(tiny_samples((directory / "clip.mp4").read_bytes(), 20_000, 20_000))
    with pytest.raises(MediaTooLarge, match="max_packets"):
        await transcode(RecordingContext(directory, max_packets=19_000), "many.mp4")


NAMES = ["", " ", "/etc/passwd", "../secret.mp4", "a/../../secret.mp4", "a/../b.mp4", "..", ".", "a\0.mp4", "a\nb.mp4",
         "\ud800.mp4", "file:/etc/passwd/../x"]  # fmt: skip
OUTPUTS = ("out.sh", "out", ".hidden.mp4", ".peerd-video/x.mp4", "folder.mp4", "é" * 130 + ".mp4")


async def test_a_name_that_leads_out_and_an_output_without_a_plain_name_are_refused(
    clip: Path, directory: Path
) -> None:
    make_clip(directory.parent / "secret.mp4", seconds=1)
    (directory / "folder.mp4").mkdir()
    for name in NAMES:
        with pytest.raises(PathRefused):
            await transcode(RecordingContext(directory), name, "out.mp4")
    for output in (*NAMES[1:], *OUTPUTS):
        with pytest.raises(PathRefused):
            await transcode(RecordingContext(directory), "clip.mp4", output)
    with pytest.raises(SourceMissing):  # it may still come
        await transcode(RecordingContext(directory), "coming.mp4")


async def test_a_link_that_leads_out_is_refused_and_one_within_the_directory_followed(
    clip: Path, directory: Path
) -> None:
    (directory / "link.mp4").symlink_to(make_clip(directory.parent / "secret.mp4", seconds=1))
    (directory / "folder").symlink_to(directory.parent)
    for name in ("link.mp4", "folder/secret.mp4"):
        with pytest.raises(PathRefused, match="link"):
            await transcode(RecordingContext(directory), name, "out.mp4")
    for name in ("folder/out.mp4", "folder/new/out.mp4"):
        with pytest.raises(PathRefused, match="link"):
            await transcode(RecordingContext(directory), "clip.mp4", name)
    assert not (directory.parent / "out.mp4").exists()
    assert not (directory.parent / "new").exists()
    (directory / "within.mp4").symlink_to("clip.mp4")
    for inside in ("within.mp4", str(clip)):
        assert (await probe(RecordingContext(directory), inside))["video"]["codec"] == "h264"


async def test_an_output_never_replaces_its_source(clip: Path, directory: Path) -> None:
    content = (directory / "clip.mp4").read_bytes()
    (directory / "same.mp4").hardlink_to(clip)
    for output in ("clip.mp4", "same.mp4"):
        with pytest.raises(PathRefused):
            await transcode(RecordingContext(directory), "clip.mp4", output)
    assert (directory / "clip.mp4").read_bytes() == content


async def test_an_invalid_request_is_refused_before_its_source_is_read(directory: Path) -> None:
    """And an argument never becomes an option of ffmpeg."""
    requests: list[dict[str, Any]] = [{"height": height} for height in (0, 15, 10**9)]
    requests += [{"max_fps": -1}, {"max_fps": 0}, {"quality": "best"}, {"quality": "-f lavfi"}]
    for wrong in requests:
        with pytest.raises(RequestRefused):
            await transcode(RecordingContext(directory), "coming.mp4", **wrong)
    for at in (-1.0, float("nan")):
        with pytest.raises(RequestRefused):
            await poster(RecordingContext(directory), "coming.mp4", at=at)
    with pytest.raises(RequestRefused):
        await poster(RecordingContext(directory), "coming.mp4", height=15)


@pytest.mark.slow
async def test_subtitles_and_a_cover_are_let_by_and_left_out(clip: Path, directory: Path, tools: FfmpegTools) -> None:
    (directory / "words.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x64", "-frames:v", "1", directory / "cover.jpg")
    inputs = ("-i", clip, "-i", directory / "words.srt", "-i", directory / "cover.jpg", "-map", "0", "-map", "1")
    for container, codec in (("mp4", "mov_text"), ("mkv", "srt"), ("mkv", "ass")):
        kinds = ("-map", "2", "-c", "copy", "-c:s", codec, "-disposition:v:1", "attached_pic")
        run_ffmpeg(*inputs, *kinds, directory / f"film.{container}")
        result = await transcode(RecordingContext(directory), f"film.{container}", "out.mp4", quality="draft")
        assert (result["frames"], result["decode_errors"]) == (25, 0)
        shown = ("-show_entries", "stream=codec_name", "-of", "csv=p=0", directory / "out.mp4")
        assert output_of(tools.ffprobe, "-v", "error", *shown).split() == [b"h264", b"aac"]


async def test_very_many_packets_are_counted_without_filling_the_processor() -> None:
    command = ["sh", "-c", "yes 0,0.04,0.04,0.04,K__ | head -n 300000"]
    counter = PacketCounter(Media(format="mov", size=1, video=VideoStream(0, "h264", 2, 2)))
    began = time.process_time()
    async with Program(command, ResourceLimits(), doing="testing", source="x") as program:
        async for line in program.lines(silence=60, within=60):
            counter.add(line)
    assert counter.survey().frames == 300_000
    assert time.process_time() - began < 2, "it takes half a second; with a wait for each line it took four"


MEASURED = """
import asyncio, resource, sys
from pathlib import Path
from peerd.workers.video.jobs import probe
from tests.video.media_helpers import RecordingContext
try:
    asyncio.run(probe(RecordingContext(Path(sys.argv[1])), "huge.mp4"))
except Exception as error:
    print(type(error).__name__)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
def test_a_small_file_with_a_huge_index_does_not_fill_the_memory(clip: Path, directory: Path) -> None:
    (directory / "huge.mp4").write_bytes(tiny_samples(clip.read_bytes(), 50_000_000, 10_000))
    *_, kilobytes = output_of(sys.executable, "-c", MEASURED, directory).split()
    assert int(kilobytes) < 2**20


@pytest.mark.slow
async def test_a_poster_of_a_large_picture_needs_little_memory(directory: Path) -> None:
    make_clip(directory / "large.mp4", size="3840x2160", seconds=1.2, sound=False)
    result = await poster(RecordingContext(directory, max_memory="500MiB", threads=1), "large.mp4")
    assert (result["width"], result["height"]) == (1280, 720)
