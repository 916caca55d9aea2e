"""Status 0 of ffmpeg is not believed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from peerd.testing import eventually_async
from peerd.workers.video.binaries import Tools
from peerd.workers.video.errors import EncoderStalled, MediaDamaged, OutputWrong, SourceChanged
from peerd.workers.video.jobs import transcode
from peerd.workers.video.media import Survey
from peerd.workers.video.plan import TranscodeRequest, plan_transcode
from peerd.workers.video.probing import probe
from peerd.workers.video.settings import read_settings
from peerd.workers.video.surveying import survey
from peerd.workers.video.verify import verify_transcode
from tests.video.bench import (
    RecordingContext,
    cut_in_half,
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


async def assert_damaged(directory: Path, name: str, saying: str) -> None:
    with pytest.raises(MediaDamaged, match=saying):
        await transcode(RecordingContext(directory), name, "out.mp4", quality="draft")
    assert not (directory / "out.mp4").exists()
    assert work_in_progress(directory) == []


async def test_half_a_matroska_file_is_damaged_although_ffmpeg_is_content(
    bunny: Path, directory: Path, tools: Tools
) -> None:
    half = cut_in_half(remuxed(bunny, directory / "whole.mkv"), directory / "half.mkv")
    output_of(tools.ffmpeg, "-v", "quiet", "-i", half, "-f", "null", "-")  # status 0, or it would raise
    await assert_damaged(directory, "half.mkv", r"claims 5\.3\d s, but only 2\.\d\d s \(\d\d %\) can be read")


async def test_half_an_mp4_with_its_index_in_front_is_damaged(bunny: Path, directory: Path) -> None:
    cut_in_half(remuxed(bunny, directory / "whole.mp4", "-movflags", "+faststart"), directory / "half.mp4")
    await assert_damaged(directory, "half.mp4", "can be read")


async def test_an_mp4_that_lost_its_index_is_damaged(directory: Path) -> None:
    cut_in_half(make_clip(directory / "whole.mp4"), directory / "half.mp4")
    await assert_damaged(directory, "half.mp4", "not readable as media: .*moov")


async def test_flipped_bits_are_damage_although_the_length_is_right(bunny: Path, directory: Path) -> None:
    flip_bits(remuxed(bunny, directory / "flipped.mkv"), 400)
    await assert_damaged(directory, "flipped.mkv", "errors while it was decoded")


async def test_what_is_readable_can_be_salvaged_and_is_said_to_be_damaged(bunny: Path, directory: Path) -> None:
    cut_in_half(remuxed(bunny, directory / "whole.mkv"), directory / "half.mkv")
    result = await transcode(RecordingContext(directory), "half.mkv", "out.mp4", quality="draft", salvage=True)
    assert result["damage"].startswith("it claims 5.3")
    assert 2 < result["duration"] < 3
    assert result["frames"] > 40


async def test_a_source_that_is_still_written_is_tried_again(bunny: Path, directory: Path) -> None:
    cut_in_half(remuxed(bunny, directory / "whole.mkv"), directory / "coming.mkv")

    class Uploading(RecordingContext):
        async def progress(self, fraction: float, note: str | None = None) -> None:
            with (directory / "coming.mkv").open("ab") as file:
                file.write(b"more")

    with pytest.raises(SourceChanged):
        await transcode(Uploading(directory), "coming.mkv", quality="draft")


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("picture lasts", ("-t", "3")),
        ("no sound", ("-an",)),
        ("frames", ("-r", "10", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "copy")),
        ("is 320x180 instead of", ("-s", "320x180", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "copy")),
        ("picture is mpeg4", ("-c:v", "mpeg4", "-c:a", "copy")),
    ],
)
async def test_an_output_that_differs_from_the_plan_is_found(
    bunny: Path, directory: Path, tools: Tools, what: str, options: tuple[str, ...]
) -> None:
    settings = read_settings({"directory": str(directory)})
    media = await probe(tools, bunny, "bunny.mp4", settings)
    seen = await survey(tools, bunny, "bunny.mp4", media, settings)
    plan = plan_transcode(media, seen, TranscodeRequest())
    wrong = remuxed(bunny, directory / "wrong.mp4", *options)
    _, found = await verify_transcode(tools, wrong, plan, "bunny.mp4", settings, _ignore)
    assert any(what in each for each in found), found
    _, found = await verify_transcode(tools, bunny, plan, "bunny.mp4", settings, _ignore)
    assert found == []


async def test_an_output_that_does_not_decode_is_found(bunny: Path, directory: Path, tools: Tools) -> None:
    settings = read_settings({"directory": str(directory)})
    media = await probe(tools, bunny, "bunny.mp4", settings)
    seen = Survey(readable=5.3, video_end=5.3, video_length=5.3, audio_end=5.3, frames=132)
    flip_bits(bunny, 400)
    with pytest.raises(OutputWrong, match="decode"):
        await verify_transcode(
            tools, bunny, plan_transcode(media, seen, TranscodeRequest()), "bunny.mp4", settings, _ignore
        )


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


async def _ignore(_: object) -> None:
    return
