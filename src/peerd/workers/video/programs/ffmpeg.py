"""One run of ffmpeg: from one guarded input to one output, watched by its own report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peerd.workers.video.errors import EncoderStalled
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.media import FORMATS
from peerd.workers.video.programs.ffmpeg_errors import explain_failure
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe import guarded_input
from peerd.workers.video.programs.program import Program, program_limits
from peerd.workers.video.programs.progress import PROGRESS_OPTIONS, FfmpegProgress, ProgressReader
from peerd.workers.video.settings import VideoSettings

OnProgress = Callable[[FfmpegProgress], Awaitable[None]]


class FfmpegJob(msgspec.Struct, frozen=True):
    """What to run. ``arguments`` stand between input and output; ``output`` None discards what comes out.

    ``source`` and ``doing`` are for the words of errors; ``total`` is the expected seconds of output.
    """

    source: str
    doing: str
    input: FileDescriptor
    arguments: Sequence[str]
    output: FileDescriptor | None
    total: float
    before_input: Sequence[str] = ()
    formats: Sequence[str] = FORMATS


class FfmpegResult(msgspec.Struct, frozen=True):
    """What a successful run reported: its last report, how many error lines, and the first of them."""

    report: FfmpegProgress
    error_count: int
    errors: list[str]


async def run_ffmpeg(
    tools: FfmpegTools, job: FfmpegJob, settings: VideoSettings, on_report: OnProgress
) -> FfmpegResult:
    """Run ffmpeg to its end; whatever ends this coroutine ends ffmpeg and its children.

    Raises the error that explains it when ffmpeg fails, stalls, or passes a limit. Success is its word only:
    the caller verifies what came out.
    """
    reader = ProgressReader(job.total)
    command = _command(tools, job, settings)
    files = [job.input, *([job.output] if job.output is not None else [])]
    async with Program(command, program_limits(settings), doing=job.doing, source=job.source, files=files) as program:
        lines = program.lines(silence=settings.stall, within=settings.max_wall, activity_probe=lambda: _touched(job))
        async for line in lines:
            report = reader.feed(line)
            if report is not None:
                _require_growth(reader, job, settings)
                await on_report(report)
        status = await program.ended()
        if status != 0:
            raise explain_failure(
                job.source,
                job.doing,
                status,
                program.errors.kept,
                directory=str(settings.directory),
                memory=settings.max_memory,
                output=settings.max_output,
            )
        return FfmpegResult(reader.report, program.errors.count, program.errors.first)


def _command(tools: FfmpegTools, job: FfmpegJob, settings: VideoSettings) -> list[str]:
    return [
        *(tools.ffmpeg, "-hide_banner", "-nostdin", "-y", "-v", "repeat+error"),
        *PROGRESS_OPTIONS,
        *("-threads", str(settings.threads)),
        *job.before_input,
        *guarded_input(tools, job.input, settings, job.formats),
        *job.arguments,
        *([f"file:{job.output.address}"] if job.output is not None else ["-f", "null", "-"]),
    ]


def _touched(job: FfmpegJob) -> tuple[int, int] | None:
    """Moving the index to the front of a large file takes long and reports nothing, but it writes."""
    if job.output is None:
        return None
    status = job.output.status
    return status.st_size, status.st_mtime_ns


def _require_growth(reader: ProgressReader, job: FfmpegJob, settings: VideoSettings) -> None:
    if reader.stalled > settings.stall:
        raise EncoderStalled(seconds=reader.stalled, doing=job.doing, source=job.source)
