"""What the video tests work with: a context that records, a media directory, clips made by ffmpeg."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from peerd.workers.video.programs.ffmpeg_tools import find_tools


class RecordingContext:
    """A task's context as handlers see it, which keeps what it is told."""

    def __init__(self, directory: Path, task: int = 7, lease: int = 1, **options: object) -> None:
        self.options: Mapping[str, Any] = {"directory": str(directory), **options}
        self.task = SimpleNamespace(id=task, lease=lease)
        self.reports: list[tuple[float, str]] = []
        self.working = asyncio.Event()

    async def progress(self, fraction: float, note: str | None = None) -> None:
        self.reports.append((fraction, note or ""))
        if "encoded" in (note or "") and fraction > 0:
            self.working.set()


def output_of(*command: object) -> bytes:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=100).stdout


def run_ffmpeg(*arguments: object) -> None:
    output_of(find_tools().ffmpeg, "-nostdin", "-y", "-v", "error", *arguments)


def make_clip(
    path: Path, *more: object, size: str = "320x180", seconds: float = 2, rate: int = 25, sound: bool = True
) -> Path:
    """A generated clip: test picture, and a tone unless `sound` is false; `more` are output options.

    Each kind is made once in a process.
    """
    path.write_bytes(_clip(path.suffix, tuple(map(str, more)), size, seconds, rate, sound))
    return path


@cache
def _clip(suffix: str, more: tuple[str, ...], size: str, seconds: float, rate: int, sound: bool) -> bytes:  # noqa: FBT001
    picture = ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate={rate}:duration={seconds}")
    tone = ("-f", "lavfi", "-i", f"sine=frequency=440:sample_rate=48000:duration={seconds}") if sound else ()
    codec = () if "-c:v" in more else ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"clip{suffix}"
        run_ffmpeg(*picture, *tone, *codec, *(("-c:a", "aac") if sound and "-c:a" not in more else ()), *more, path)
        return path.read_bytes()


def remuxed(source: Path, path: Path, *options: object) -> Path:
    """The same streams in another container; `options` stand before the output."""
    run_ffmpeg("-i", source, "-c", "copy", *options, path)
    return path


def programs_of_this_process() -> list[psutil.Process]:
    """ffmpeg and ffprobe below this process, or what is about to become them; not the test run's own servers."""
    found = []
    for program in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if program.name().startswith("ff") or any(
                "peerd.runtime.os_processes" in word for word in program.cmdline()
            ):
                found.append(program)
    return found


def files_in(directory: Path) -> list[Path]:
    """Everything below a directory, hidden or not."""
    return sorted(directory.rglob("*"))


def held_below(directory: Path) -> list[str]:
    """What this process has open below a directory, the directory included."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            held.append(str(link.readlink()))
    return [path for path in held if path.startswith(str(directory))]


def work_in_progress(directory: Path) -> list[Path]:
    """The private folders that are left below a media directory."""
    return list(directory.glob(".peerd-video*")) + list(directory.glob(".peerd-video/*"))
