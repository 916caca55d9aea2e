"""One run of ffmpeg, from one guarded input to one output, supervised by its own progress report."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peerd.workers.video.errors import EncoderStalled
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.formats import FORMATS
from peerd.workers.video.programs.ffmpeg_errors import explain_failure
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe import guarded_input
from peerd.workers.video.programs.program import Program, program_limits

PROGRESS_OPTIONS = ("-nostats", "-progress", "pipe:1", "-stats_period", "0.5")


class FfmpegProgress(msgspec.Struct, frozen=True):
    """Progress of ffmpeg: 0 to 1, seconds of output, frames, speed as a multiple of real time, and seconds left."""

    fraction: float
    seconds: float
    frames: int
    speed: float | None
    left: float | None

    def format_note(self, total: float) -> str:
        """For example '12 of 60 s encoded, 3.1× real time, 15 s left'."""
        parts = [f"{self.seconds:.0f} of {total:.0f} s encoded"]
        if self.speed is not None:
            parts.append(f"{self.speed:.1f}× real time")
        if self.left is not None:
            parts.append(f"{self.left:.0f} s left")
        return ", ".join(parts)


OnProgress = Callable[[FfmpegProgress], Awaitable[None]]


class FfmpegJob(msgspec.Struct, frozen=True):
    """What to run. ``arguments`` stand between input and output; ``output`` None discards the output.

    ``doing`` is the activity that errors name; ``total`` is the expected seconds of output, and
    ``watch`` gets each line that it prints.
    """

    doing: str
    input: FileDescriptor
    arguments: Sequence[str]
    output: FileDescriptor | None
    total: float
    before_input: Sequence[str] = ()
    formats: Sequence[str] = FORMATS
    watch: Callable[[bytes], object] = lambda _: None


class FfmpegResult(msgspec.Struct, frozen=True):
    """What a successful run reported: the last progress, the number of error lines, and the first of them."""

    report: FfmpegProgress
    error_count: int
    errors: list[str]

    def without_first(self, count: int) -> FfmpegResult:
        """Return it without its first error lines."""
        return FfmpegResult(self.report, max(0, self.error_count - count), self.errors[count:])


async def run_ffmpeg(context: ProgramContext, job: FfmpegJob, on_progress: OnProgress | None = None) -> FfmpegResult:
    """Run ffmpeg to its end; ffmpeg and its children end with this coroutine.

    Raises the error that explains it when ffmpeg fails, stalls, or exceeds a limit. Status 0 proves nothing: the caller
    verifies the output.
    """
    settings, source = context.settings, context.source
    command = [
        *(context.tools.ffmpeg, "-hide_banner", "-nostdin", "-y", "-v", "repeat+error"),
        *PROGRESS_OPTIONS,
        *("-max_error_rate", "1", "-threads", str(settings.threads)),  # errors are counted, and judged, here
        *job.before_input,
        *guarded_input(context, job.input, job.formats),
        *job.arguments,
        *([f"file:{job.output.address}"] if job.output is not None else ["-f", "null", "-"]),
    ]
    reader = ProgressReader(job.total)
    files = [job.input, *([job.output] if job.output is not None else [])]
    async with Program(command, program_limits(settings), doing=job.doing, source=source, files=files) as program:
        async for line in program.lines(
            silence=settings.stall, within=settings.max_wall, activity_probe=lambda: _file_activity(job.output)
        ):
            job.watch(line)
            progress = reader.feed(line)
            if progress is not None:
                if reader.stalled > settings.stall:
                    raise EncoderStalled(seconds=reader.stalled, doing=job.doing, source=source)
                if on_progress is not None:
                    await on_progress(progress)
        status = await program.ended()
        if status != 0:
            raise explain_failure(context, job.doing, status, program.errors.kept)
        return FfmpegResult(reader.progress, program.errors.count, program.errors.first)


def _file_activity(output: FileDescriptor | None) -> tuple[int, int] | None:
    """A value that changes with each write: moving the index of a large file to its front reports no progress."""
    return None if output is None else (output.status.st_size, output.status.st_mtime_ns)


class ProgressReader:
    """Parses the lines of ``-progress``: `feed` returns a FfmpegProgress at the end of each block.

    ``total``: the expected seconds of output; 0 or less means unknown, and the fraction stays 0 until the end.
    """

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress = FfmpegProgress(0.0, 0.0, 0, None, None)
        self._total = total
        self._clock = clock
        self._block: dict[str, str] = {}
        self._reached: tuple[float, int] = (0.0, 0)
        self._grown_at = clock()

    @property
    def stalled(self) -> float:
        """Seconds since the time or the size of the output last grew."""
        return self._clock() - self._grown_at

    def feed(self, line: bytes) -> FfmpegProgress | None:
        """Add one line; return the progress when the line ends a block."""
        key, _, value = line.decode(errors="replace").strip().partition("=")
        self._block[key] = value.strip()
        if key != "progress":
            return None
        block, self._block = self._block, {}
        self.progress = self._parse_block(block)
        return self.progress

    def _parse_block(self, block: dict[str, str]) -> FfmpegProgress:
        # out_time_ms is in microseconds too, in every version; the value may be absent, N/A or negative at first.
        seconds = max(self.progress.seconds, (_integer(block.get("out_time_us")) or 0) / 1e6)
        size = _integer(block.get("total_size")) or 0
        if seconds > self._reached[0] or size > self._reached[1]:
            self._reached = (max(seconds, self._reached[0]), max(size, self._reached[1]))
            self._grown_at = self._clock()
        fraction = min(1.0, seconds / self._total) if self._total > 0 else 0.0
        if block["progress"] == "end":
            fraction = 1.0
        speed = _speed(block.get("speed"))
        left = (self._total - seconds) / speed if speed and self._total > seconds else None
        frames = max(self.progress.frames, _integer(block.get("frame")) or 0)
        return FfmpegProgress(max(self.progress.fraction, fraction), seconds, frames, speed, left)


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _speed(text: str | None) -> float | None:
    try:
        speed = float((text or "").rstrip("x"))
    except ValueError:
        return None
    return speed if speed > 0 else None
