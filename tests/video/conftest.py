"""Real media, fetched once per machine and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from peerd.cli.demo.sample_clip import fetch_clip, fetch_sample
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools, find_tools
from tests.video.media_helpers import make_clip


@pytest.fixture(scope="session")
def kept() -> Path:
    folder = Path(os.environ.get("PEERD_TEST_CACHE") or Path.home() / ".cache" / "peerd-tests")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "video.lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch_clip(folder)
        fetch_sample(folder)
    return folder


@pytest.fixture(scope="session")
def tools() -> FfmpegTools:
    return find_tools()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    media = tmp_path / "media"
    media.mkdir()
    return media


@pytest.fixture
def clip(directory: Path) -> Path:
    """A second of a test picture and a tone."""
    return make_clip(directory / "clip.mp4", seconds=1)


@pytest.fixture
def bunny(kept: Path, directory: Path) -> Path:
    """5.3 s of real video, 1280x720, 132 frames, 5.1 sound."""
    return Path(shutil.copy(kept / "bigbuckbunny.mp4", directory / "bunny.mp4"))


@pytest.fixture
def minute(kept: Path, directory: Path) -> Path:
    """The same, repeated to a minute: long enough to be interrupted."""
    return Path(shutil.copy(kept / "bigbuckbunny-minute.mp4", directory / "minute.mp4"))
