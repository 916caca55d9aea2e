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


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nconcat:http://127.0.0.1:{port}/a|/etc/passwd\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile other.mp4\n",
        "ffconcat version 1.0\nfile http://127.0.0.1:{port}/a.mp4\n",
        (
            '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
            '<Representation id="0"><BaseURL>http://127.0.0.1:{port}/a.mp4</BaseURL></Representation></AdaptationSet>'
            "</Period></MPD>"
        ),
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
        "1\n00:00:01,000 --> 00:00:02,000\nnot a video\n",
        "hello, this is a text\n" * 100,
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:{port}/a.png'/></svg>",
    ],
    ids=[
        "hls-http",
        "hls-file",
        "hls-concat",
        "ffconcat-sibling",
        "ffconcat-http",
        "dash",
        "sdp",
        "srt",
        "text",
        "svg",
    ],
)
@pytest.mark.parametrize("name", ["film.mp4", "film.m3u8"])
async def test_a_text_that_names_other_files_is_refused(
    directory: Path, internal: socket.socket, text: str, name: str
) -> None:
    make_clip(directory / "other.mp4", seconds=1)  # a stranger's video beside it
    (directory / name).write_text(text.replace("{port}", str(internal.getsockname()[1])))
    await assert_refused(directory, name)
    assert_nobody_called(internal)


async def test_a_quicktime_file_that_points_elsewhere_brings_nothing_in(directory: Path) -> None:
    # MOV's external data reference ('alis'/'url '), which may name another file
    clip = make_clip(directory / "clip.mov", seconds=1)
    content = clip.read_bytes().replace(b"url \x00\x00\x00\x01", b"url \x00\x00\x00\x00")
    (directory / "outside.mov").write_bytes(content)
    result = await probe(RecordingContext(directory), "outside.mov")
    assert result["video"]["codec"] == "h264"


async def test_an_empty_file_is_refused(directory: Path) -> None:
    (directory / "empty.mp4").touch()
    await assert_refused(directory, "empty.mp4", SourceEmpty)


async def test_noise_is_refused(directory: Path) -> None:
    (directory / "noise.mp4").write_bytes(os.urandom(50_000))
    await assert_refused(directory, "noise.mp4", MediaUnreadable)


async def test_a_picture_is_not_a_video(directory: Path) -> None:
    make_clip(directory / "picture.bmp", "-c:v", "bmp", "-frames:v", "1", sound=False)
    (directory / "picture.bmp").rename(directory / "picture.mp4")
    await assert_refused(directory, "picture.mp4")


async def test_a_codec_that_is_not_listed_is_refused_by_name(directory: Path) -> None:
    make_clip(directory / "stills.mov", "-c:v", "qtrle", sound=False)
    await assert_refused(directory, "stills.mov", FormatRefused)


async def test_sound_alone_is_refused(directory: Path) -> None:
    make_clip(directory / "song.mp4", "-vn", "-c:v", "copy")
    await assert_refused(directory, "song.mp4", FormatRefused)


async def test_a_picture_with_too_many_pixels_is_refused(directory: Path) -> None:
    make_clip(directory / "bomb.mp4", size="640x360", seconds=1)
    for handler in (probe, transcode, poster):
        with pytest.raises(MediaTooLarge, match="max_pixels"):
            await handler(RecordingContext(directory, max_pixels=100_000), "bomb.mp4")


@pytest.mark.parametrize("option", [{"max_source": 1000}, {"max_duration": 1}, {"max_output": 4096}, {"max_wall": 0.3}])
async def test_a_limit_ends_the_work_and_names_its_option(bunny: Path, directory: Path, option: dict[str, Any]) -> None:
    with pytest.raises(MediaTooLarge, match=next(iter(option))):
        await transcode(RecordingContext(directory, **option), "bunny.mp4", quality="high")
    assert files_in(directory) == [bunny]


async def test_a_length_that_no_header_contains_is_limited_too(directory: Path, tools: FfmpegTools) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=3)
    endless = directory / "endless.mkv"
    endless.write_bytes(output_of(tools.ffmpeg, "-v", "error", "-i", clip, "-c", "copy", "-f", "matroska", "-"))
    with pytest.raises(MediaTooLarge, match="max_duration"):
        await transcode(RecordingContext(directory, max_duration="2s"), "endless.mkv")


async def test_a_limit_of_memory_ends_the_work(bunny: Path, directory: Path) -> None:
    with pytest.raises(MediaRefused):
        await transcode(RecordingContext(directory, max_memory="150MiB"), "bunny.mp4")
    assert files_in(directory) == [bunny]


@pytest.mark.parametrize(
    "name",
    ["", " ", "/etc/passwd", "../secret.mp4", "a/../../secret.mp4", "a/../b.mp4", "..", ".", "a\0.mp4", "a\nb.mp4",
     "\ud800.mp4", "file:/etc/passwd/../x"],
)  # fmt: skip
async def test_a_name_that_leads_out_is_refused(directory: Path, name: str) -> None:
    make_clip(directory.parent / "secret.mp4", seconds=1)
    make_clip(directory / "clip.mp4", seconds=1)
    with pytest.raises(PathRefused):
        await transcode(RecordingContext(directory), name, "out.mp4")
    with pytest.raises(PathRefused):
        await transcode(RecordingContext(directory), "clip.mp4", name if name != "" else " ")


async def test_a_link_that_leads_out_is_refused(directory: Path) -> None:
    secret = make_clip(directory.parent / "secret.mp4", seconds=1)
    (directory / "link.mp4").symlink_to(secret)
    (directory / "folder").symlink_to(directory.parent)
    make_clip(directory / "clip.mp4", seconds=1)
    for name in ("link.mp4", "folder/secret.mp4"):
        with pytest.raises(PathRefused, match="link"):
            await transcode(RecordingContext(directory), name, "out.mp4")
    for name in ("folder/out.mp4", "folder/new/out.mp4"):
        with pytest.raises(PathRefused, match="link"):
            await transcode(RecordingContext(directory), "clip.mp4", name)
    assert not (directory.parent / "out.mp4").exists()
    assert not (directory.parent / "new").exists()


async def test_a_link_within_the_directory_is_followed(directory: Path) -> None:
    make_clip(directory / "clip.mp4", seconds=1)
    (directory / "link.mp4").symlink_to("clip.mp4")
    assert (await probe(RecordingContext(directory), "link.mp4"))["video"]["codec"] == "h264"


async def test_an_absolute_name_within_the_directory_is_accepted(directory: Path) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    result = await transcode(RecordingContext(directory), str(clip), quality="draft")
    assert result["output"] == "clip-720p.mp4"


async def test_a_pipe_is_refused_without_waiting_for_it(directory: Path) -> None:
    os.mkfifo(directory / "pipe.mp4")
    await assert_refused(directory, "pipe.mp4", PathRefused)


async def test_an_output_never_replaces_its_source(directory: Path) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    content = clip.read_bytes()
    (directory / "same.mp4").hardlink_to(clip)
    for output in ("clip.mp4", "same.mp4"):
        with pytest.raises(PathRefused):
            await transcode(RecordingContext(directory), "clip.mp4", output)
    assert clip.read_bytes() == content


@pytest.mark.parametrize(
    "output", ["out.sh", "out", ".hidden.mp4", ".peerd-video/x.mp4", "folder.mp4", "é" * 130 + ".mp4"]
)
async def test_an_output_has_a_plain_name(directory: Path, output: str) -> None:
    make_clip(directory / "clip.mp4", seconds=1)
    (directory / "folder.mp4").mkdir()
    with pytest.raises(PathRefused):
        await transcode(RecordingContext(directory), "clip.mp4", output)


async def test_a_missing_source_may_still_come(directory: Path) -> None:
    with pytest.raises(SourceMissing):
        await transcode(RecordingContext(directory), "coming.mp4")


@pytest.mark.parametrize("arguments", [{"height": 0}, {"height": 10**9}, {"max_fps": -1}, {"quality": "-f lavfi"}])
async def test_an_argument_never_becomes_an_option_of_ffmpeg(directory: Path, arguments: dict[str, object]) -> None:
    make_clip(directory / "clip.mp4", seconds=1)
    with pytest.raises(RequestRefused):
        await transcode(RecordingContext(directory), "clip.mp4", "out.mp4", **arguments)  # type: ignore[arg-type]


async def test_an_invalid_request_is_refused_before_its_source_is_read(directory: Path) -> None:
    for wrong in ({"height": 15}, {"max_fps": 0}, {"quality": "best"}):
        with pytest.raises(RequestRefused):
            await transcode(RecordingContext(directory), "coming.mp4", **wrong)
    for at in (-1.0, float("nan")):
        with pytest.raises(RequestRefused):
            await poster(RecordingContext(directory), "coming.mp4", at=at)
    with pytest.raises(RequestRefused):
        await poster(RecordingContext(directory), "coming.mp4", height=15)


async def test_a_stream_that_was_not_requested_opens_no_decoder_that_is_not_listed(directory: Path) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    second = ("-i", clip, "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=5:duration=1", "-map", "0", "-map", "1:v")
    run_ffmpeg(*second, "-c", "copy", "-c:v:1", "qtrle", directory / "two.mov")
    for handler in (probe, transcode, poster):
        with pytest.raises(FormatRefused, match="codec qtrle of one of its streams"):
            await handler(RecordingContext(directory), "two.mov")


@pytest.mark.parametrize(("container", "codec"), [("mp4", "mov_text"), ("mkv", "srt"), ("mkv", "ass")])
async def test_subtitles_and_a_cover_are_let_by_and_left_out(
    directory: Path, tools: FfmpegTools, container: str, codec: str
) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    (directory / "words.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x64", "-frames:v", "1", directory / "cover.jpg")
    inputs = ("-i", clip, "-i", directory / "words.srt", "-i", directory / "cover.jpg")
    kinds = ("-c", "copy", "-c:s", codec, "-disposition:v:1", "attached_pic")
    run_ffmpeg(*inputs, "-map", "0", "-map", "1", "-map", "2", *kinds, directory / f"film.{container}")
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


async def test_the_number_of_packets_has_a_bound(directory: Path) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    (directory / "many.mp4").write_bytes(tiny_samples(clip.read_bytes(), 20_000, 20_000))
    with pytest.raises(MediaTooLarge, match="max_packets"):
        await transcode(RecordingContext(directory, max_packets=19_000), "many.mp4")


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


def test_a_small_file_with_a_huge_index_does_not_fill_the_memory(directory: Path) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=1)
    (directory / "huge.mp4").write_bytes(tiny_samples(clip.read_bytes(), 50_000_000, 10_000))
    *_, kilobytes = output_of(sys.executable, "-c", MEASURED, directory).split()
    assert int(kilobytes) < 2**20


async def test_a_poster_of_a_large_picture_needs_little_memory(directory: Path) -> None:
    make_clip(directory / "large.mp4", size="3840x2160", seconds=1.2, sound=False)
    result = await poster(RecordingContext(directory, max_memory="500MiB", threads=1), "large.mp4")
    assert (result["width"], result["height"]) == (1280, 720)
