"""What a handler works with: the worker's settings and tools, the media directory, the task's private folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol, Self, TypeVar

from peerd.workers.video.errors import MediaDamaged, PathRefused, SourceChanged, ToolLacks
from peerd.workers.video.files.descriptors import FileDescriptor, identity_of
from peerd.workers.video.files.paths import MediaDirectory, NamedEntry, SourceFile
from peerd.workers.video.files.publish import OutputFile, PrivateFolder, publish, sha256_of
from peerd.workers.video.media import Media, Survey, VideoStream
from peerd.workers.video.plan import TranscodePlan, transcode_arguments
from peerd.workers.video.poster_plan import PosterPlan, poster_arguments
from peerd.workers.video.programs.ffmpeg import FfmpegJob, FfmpegResult, OnProgress, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools, find_tools
from peerd.workers.video.programs.ffprobe import probe as probe_file
from peerd.workers.video.programs.ffprobe import require_acceptable
from peerd.workers.video.programs.progress import FfmpegProgress
from peerd.workers.video.programs.surveying import survey
from peerd.workers.video.settings import VideoSettings, read_settings
from peerd.workers.video.verify import require_frames, require_short_enough

Result = TypeVar("Result")


class JobContext(Protocol):
    """What the handlers use of `peerd.JobContext`; the tests have one of their own."""

    @property
    def options(self) -> Mapping[str, Any]:
        """``[workers.video.options]``."""

    @property
    def task(self) -> Any:
        """The task's row; its ``id`` names the private folder."""

    def progress(self, fraction: float, note: str | None = None) -> Awaitable[None]:
        """Record how far the task is."""


class JobEnvironment:
    """What a handler works with: the settings, the media directory, the tools, the task's private folder."""

    def __init__(self, settings: VideoSettings, tools: FfmpegTools, task: object) -> None:
        self.settings = settings
        self.tools = tools
        self.files = MediaDirectory(settings.directory)
        self._task = task

    @classmethod
    async def open(cls, ctx: JobContext) -> Self:
        """Read the worker's options and find the tools. Raises Misconfigured, ToolsMissing."""
        settings = read_settings(ctx.options)
        return cls(settings, await asyncio.to_thread(find_tools), ctx.task.id)

    @contextlib.contextmanager
    def reading(self, source: str) -> Iterator[SourceFile]:
        """Lend the open source. Raises SourceChanged at the end when it is not what it was."""
        with self.files.open_source(source) as file, _require_unchanged(file, source):
            yield file

    @contextlib.contextmanager
    def open_job_files(
        self, source: str, output: str, suffix: str
    ) -> Iterator[tuple[SourceFile, OutputFile, NamedEntry]]:
        """Lend the open source, an empty file in a private folder, and the place where that is to be published."""
        with self.files.resolve_output(output, suffix) as target, self.reading(source) as file:
            _require_another_file(target, file, source)
            with PrivateFolder(self.settings.private, self._task) as folder:
                folder.require_same_file_system(target.folder, target.relative)
                with folder.create(f"output{suffix}") as output_file:
                    yield file, output_file, target

    async def probe_source(
        self, file: FileDescriptor, source: str, *, audio: bool = False
    ) -> tuple[Media, VideoStream]:
        """Probe a source, and hold it against lists and limits; ``audio``: its sound is wanted too."""
        media = await probe_file(self.tools, file, source, self.settings)
        return media, require_acceptable(media, source, self.settings, audio=audio)

    async def survey_source(self, file: FileDescriptor, source: str, *, audio: bool) -> tuple[Media, Survey]:
        """Look at a source, and read it to its end."""
        media, video = await self.probe_source(file, source, audio=audio)
        self.require_tone_mapping(video, source)
        measured = await survey(self.tools, file, source, media, self.settings)
        require_frames(measured, source)
        require_short_enough(measured, source, self.settings)
        return media, measured

    async def encode(
        self, file: FileDescriptor, output_file: FileDescriptor, plan: TranscodePlan, source: str, on_report: OnProgress
    ) -> FfmpegResult:
        """Run the encoder as the plan says."""
        arguments = transcode_arguments(plan, self.settings.threads)
        job = FfmpegJob(source, "encoding", file, arguments, output_file, plan.expected.duration)
        return await run_ffmpeg(self.tools, job, self.settings, on_report)

    async def encode_poster(
        self, file: FileDescriptor, output_file: FileDescriptor, plan: PosterPlan, source: str
    ) -> None:
        """Take one picture as the plan says."""
        seek = ("-ss", f"{plan.at:.3f}")
        job = FfmpegJob(source, "taking a picture of", file, poster_arguments(plan), output_file, 0.0, seek)
        await run_ffmpeg(self.tools, job, self.settings, _ignore)
        if not output_file.status.st_size:
            raise MediaDamaged(source=source, reason=f"it has no picture at {plan.at:.2f} s")

    async def publish(self, output_file: OutputFile, target: NamedEntry) -> tuple[int, str]:
        """Move a verified file to its place; return its size and SHA-256."""
        size, sha256 = output_file.status.st_size, await asyncio.to_thread(sha256_of, output_file.reader())
        await _run_uncancelled(lambda: publish(output_file, target))
        return size, sha256

    def require_tone_mapping(self, video: VideoStream, source: str) -> None:
        """Refuse a high dynamic range that this build cannot map. Raises ToolLacks."""
        if video.is_hdr and not {"zscale", "tonemap"} <= self.tools.filters:
            what = "the filters zscale and tonemap for its high dynamic range"
            raise ToolLacks(source=source, what=what, version=self.tools.version, path=self.tools.ffmpeg)


def _require_another_file(target: NamedEntry, file: FileDescriptor, source: str) -> None:
    there = target.folder.look_up(target.name)
    if there is not None and identity_of(there) == file.identity:
        raise PathRefused(name=source, role="output", reason="it is the source itself")


@contextlib.contextmanager
def _require_unchanged(file: SourceFile, source: str) -> Iterator[None]:
    """A file that somebody still writes looks damaged; say so, and let the task be retried."""
    before = file.stamp
    try:
        yield
    except MediaDamaged as error:
        if file.stamp != before:
            raise SourceChanged(source=source) from error
        raise
    if file.stamp != before:
        raise SourceChanged(source=source)


async def _run_uncancelled(function: Callable[[], Result]) -> Result:
    """Run blocking code in a thread; a cancellation waits for it, so that nothing happens after we are gone."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _ignore(_: FfmpegProgress) -> None:
    return
