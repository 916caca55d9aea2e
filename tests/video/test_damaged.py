"""A status 0 of ffmpeg does not prove a complete output."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from peerd.testing import eventually_async
from peerd.workers.video.errors import EncoderFailed, EncoderStalled, MediaDamaged, OutputWrong, SourceChanged
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.jobs import poster, transcode
from peerd.workers.video.plan import TranscodeRequest, plan_transcode
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools, ProgramContext
from peerd.workers.video.settings import read_settings
from peerd.workers.video.source import survey_source
from peerd.workers.video.verify import verify_transcode
from tests.video.attacks import Interrupted, wrapped_tools
from tests.video.media_helpers import (
    RecordingContext,
    files_in,
    make_clip,
    output_of,
    programs_of_this_process,
    remuxed,
    work_in_progress,
)


def flip_bits(path: Path, count: int) -> None:
    content, dice = bytearray(path.read_bytes()), random.Random(7)
    for _ in range(count):
        content[dice.randrange(5000, len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


async def assert_damaged(directory: Path, name: str, saying: str) -> None:
    with pytest.raises(MediaDamaged, match=saying):
        await transcode(RecordingContext(directory), name, "out.mp4", quality="draft")
    assert not (directory / "out.mp4").exists()
    assert work_in_progress(directory) == []


async def test_half_a_file_is_damaged_and_can_be_salvaged(bunny: Path, directory: Path, tools: FfmpegTools) -> None:
    cut_in_half(half := remuxed(bunny, directory / "half.mkv"))
    output_of(tools.ffmpeg, "-v", "quiet", "-i", half, "-f", "null", "-")  # status 0, or it would raise
    await assert_damaged(directory, "half.mkv", r"claims 5\.3\d s, but only 2\.\d\d s \(\d\d %\) can be read")
    result = await transcode(RecordingContext(directory), "half.mkv", "out.mp4", quality="draft", salvage=True)
    assert result["damage"].startswith("it claims 5.3")
    assert result["frames"] > 40
    assert 2 < result["missing"] < 3.4


@pytest.mark.slow
async def test_half_an_mp4_with_or_without_its_index_and_flipped_bits_and_a_hole_are_damage(
    bunny: Path, directory: Path
) -> None:
    cut_in_half(remuxed(bunny, directory / "half.mp4", "-movflags", "+faststart"))
    await assert_damaged(directory, "half.mp4", "can be read")
    cut_in_half(make_clip(directory / "half.mp4"))
    await assert_damaged(directory, "half.mp4", "not readable as media: .*moov")
    flip_bits(remuxed(bunny, directory / "flipped.mkv"), 400)
    await assert_damaged(directory, "flipped.mkv", "errors while it was decoded")
    content = remuxed(bunny, directory / "hole.mkv").read_bytes()
    four, seven = len(content) * 4 // 10, len(content) * 7 // 10
    for missing in (bytes(seven - four), b""):
        (directory / "hole.mkv").write_bytes(content[:four] + missing + content[seven:])
        await assert_damaged(directory, "hole.mkv", "s without a picture")


@pytest.mark.slow
async def test_a_source_that_is_still_written_is_tried_again(bunny: Path, directory: Path) -> None:
    cut_in_half(remuxed(bunny, directory / "coming.mkv"))

    class Uploading(RecordingContext):
        async def progress(self, fraction: float, note: str | None = None) -> None:
            with (directory / "coming.mkv").open("ab") as file:
                file.write(b"more")

    with pytest.raises(SourceChanged):
        await transcode(Uploading(directory), "coming.mkv", quality="draft")
    late = Interrupted(directory, "publishing", bunny.touch)
    with pytest.raises(SourceChanged):
        await transcode(late, bunny.name, "out.mp4", height=90, quality="draft")
    assert not (directory / "out.mp4").exists(), "it would be in the way of the next attempt"


@pytest.mark.slow
async def test_an_output_that_differs_from_the_plan_is_found(directory: Path, tools: FfmpegTools) -> None:
    clip = make_clip(directory / "clip.mp4", seconds=4)
    context = ProgramContext(tools, read_settings({"directory": str(directory)}), "clip.mp4")
    with FileDescriptor.at(clip) as file:
        plan = plan_transcode(*await survey_source(context, file, audio=True, max_fps=60), TranscodeRequest())
        assert (await verify_transcode(context, file, plan))[1] == []
    encoded = ("-c:v", "libx264", "-preset", "ultrafast", "-c:a", "copy")
    for what, *options in (
        ("picture lasts", "-t", "2"),
        ("no sound", "-an"),
        ("is 160x90 instead of", "-r", "10", "-s", "160x90", *encoded),
        ("frames", "-r", "10", *encoded),
        ("picture is mpeg4", "-c:v", "mpeg4", "-c:a", "copy"),
    ):
        with FileDescriptor.at(remuxed(clip, directory / "wrong.mp4", *options)) as file:
            _, found = await verify_transcode(context, file, plan)
        assert any(what in each for each in found), (what, found)


@pytest.mark.slow
async def test_an_output_that_does_not_decode_is_found(bunny: Path, directory: Path, tools: FfmpegTools) -> None:
    context = ProgramContext(tools, read_settings({"directory": str(directory)}), "bunny.mp4")
    with FileDescriptor.at(bunny) as file:
        plan = plan_transcode(*await survey_source(context, file, audio=True, max_fps=60), TranscodeRequest())
    flip_bits(bunny, 400)
    with FileDescriptor.at(bunny) as file, pytest.raises(OutputWrong, match="decode"):
        await verify_transcode(context, file, plan)


@pytest.mark.slow
async def test_an_encoder_that_stands_still_is_ended(minute: Path, directory: Path) -> None:
    class Freezing(RecordingContext):
        async def progress(self, fraction: float, note: str | None = None) -> None:
            if "encoded" in (note or ""):
                for program in programs_of_this_process():
                    program.suspend()

    with pytest.raises(EncoderStalled, match="no progress for"):
        await transcode(Freezing(directory, stall=1.5), minute.name, quality="high")
    await eventually_async(lambda: programs_of_this_process() == [])
    assert files_in(directory) == [minute]


@pytest.mark.usefixtures("clip")
async def test_a_reader_that_was_killed_is_no_fault_of_the_source(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in ("packet=", "-show_entries"):  # while it counts packets, while it reads the headers
        tools = wrapped_tools(tmp_path / asked, f'case "$*" in *{asked}*) kill -9 $$;; esac')
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(EncoderFailed, match="SIGKILL"):
            await transcode(RecordingContext(directory), "clip.mp4", quality="draft")


@pytest.mark.slow
async def test_noise_is_not_tried_again(directory: Path) -> None:
    content = bytearray(make_clip(directory / "noise.mp4").read_bytes())
    start = content.index(b"mdat") + 4
    size = int.from_bytes(content[start - 8 : start - 4], "big") - 8  # its index stays
    content[start : start + size] = random.Random(3).randbytes(size)
    (directory / "noise.mp4").write_bytes(content)
    for salvage in (False, True):
        with pytest.raises(MediaDamaged) as refused:
            await transcode(RecordingContext(directory), "noise.mp4", quality="draft", salvage=salvage)
        assert salvage is False or "salvage" not in str(refused.value)
    with pytest.raises(MediaDamaged) as refused:
        await poster(RecordingContext(directory), "noise.mp4")
    assert "salvage" not in str(refused.value), "poster has no such argument"
