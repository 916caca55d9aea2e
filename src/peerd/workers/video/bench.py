"""What a handler works with: the worker's settings and tools, the media directory, the task's private folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from peerd.workers.video.binaries import Tools, find_tools
from peerd.workers.video.errors import MediaDamaged, PathRefused, SourceChanged, ToolLacks
from peerd.workers.video.ffmpeg import Finished, Job, OnReport, run_ffmpeg
from peerd.workers.video.media import Media, Survey
from peerd.workers.video.paths import MediaDirectory
from peerd.workers.video.plan import TranscodePlan, transcode_arguments
from peerd.workers.video.poster_plan import PosterPlan, poster_arguments
from peerd.workers.video.probing import probe as probe_file
from peerd.workers.video.probing import require_acceptable
from peerd.workers.video.progress import Report
from peerd.workers.video.publish import PrivateFolder, digest, publish
from peerd.workers.video.settings import VideoSettings, read_settings
from peerd.workers.video.surveying import survey
from peerd.workers.video.verify import (
    require_frames,
    require_short_enough,
)

Result = TypeVar("Result")


class Context(Protocol):
    """What the handlers use of `peerd.Context`; the tests have one of their own."""

    @property
    def options(self) -> Mapping[str, Any]:
        """``[workers.video.options]``."""

    @property
    def task(self) -> Any:
        """The task's row; its ``id`` names the private folder."""

    def progress(self, fraction: float, note: str | None = None) -> Awaitable[None]:
        """Record how far the task is."""


class Bench:
    """What a handler works with: the settings, the media directory, the tools, the task's private folder."""

    def __init__(self, settings: VideoSettings, tools: Tools, task: object) -> None:
        self.settings = settings
        self.tools = tools
        self.files = MediaDirectory(settings.directory)
        self._task = task

    @classmethod
    async def open(cls, ctx: Context) -> Self:
        """Read the worker's options and find the tools. Raises Misconfigured, ToolsMissing."""
        settings = read_settings(ctx.options)
        return cls(settings, await asyncio.to_thread(find_tools), ctx.task.id)

    @contextlib.asynccontextmanager
    async def reading(self, source: str, place: Path | None = None) -> AsyncIterator[tuple[Path, PrivateFolder]]:
        """Lend a source under a name of our own, and a private folder from which ``place`` can be reached."""
        real = self.files.find_source(source)
        if place is not None:
            _require_another_file(place, real, source)
        with PrivateFolder(self.settings.private, self._task) as folder, _unchanged(real, source):
            if place is not None:
                folder.require_same_file_system(place.parent)
            yield folder.link(real), folder

    async def examine(self, link: Path, source: str, *, audio: bool) -> tuple[Media, Survey]:
        """Probe a source, hold it against lists and limits, and read it to its end."""
        media = await probe_file(self.tools, link, source, self.settings)
        require_acceptable(media, source, self.settings, audio=audio)
        seen = await survey(self.tools, link, source, media, self.settings)
        require_frames(seen, source)
        require_short_enough(seen, source, self.settings)
        return media, seen

    async def encode(self, link: Path, made: Path, plan: TranscodePlan, source: str, on_report: OnReport) -> Finished:
        """Run the encoder as the plan says."""
        self._require_tone_map_for(plan, source)
        arguments = transcode_arguments(plan, self.settings.threads)
        job = Job(source, "encoding", link, arguments, made, plan.expected.duration)
        return await run_ffmpeg(self.tools, job, self.settings, on_report)

    async def take_picture(self, link: Path, made: Path, plan: PosterPlan, source: str) -> None:
        """Take one picture as the plan says."""
        self._require_tone_map_for(plan, source)
        seek = ("-ss", f"{plan.at:.3f}")
        job = Job(source, "taking a picture of", link, poster_arguments(plan), made, 0.0, seek)
        await run_ffmpeg(self.tools, job, self.settings, _ignore)
        if not _size(made):
            raise MediaDamaged(source=source, reason=f"it has no picture at {plan.at:.2f} s")

    async def publish(self, made: Path, place: Path) -> tuple[int, str]:
        """Move a verified file to its place; return its size and SHA-256."""
        size, sha256 = _size(made), await asyncio.to_thread(digest, made)
        await _to_its_end(lambda: publish(made, place, self.files.relative(place)))
        return size, sha256

    def _require_tone_map_for(self, plan: TranscodePlan | PosterPlan, source: str) -> None:
        if plan.tone_map and not {"zscale", "tonemap"} <= self.tools.filters:
            what = "the filters zscale and tonemap for its high dynamic range"
            raise ToolLacks(source=source, what=what, version=self.tools.version, path=self.tools.ffmpeg)


def _require_another_file(place: Path, real: Path, source: str) -> None:
    if place.exists() and place.samefile(real):
        raise PathRefused(name=source, role="output", reason="it is the source itself")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _unchanged(real: Path, source: str) -> Iterator[None]:
    """A file that somebody still writes looks damaged; say so, and let the task be retried."""
    before = _stamp(real)
    try:
        yield
    except MediaDamaged as error:
        if _stamp(real) != before:
            raise SourceChanged(source=source) from error
        raise
    if _stamp(real) != before:
        raise SourceChanged(source=source)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


async def _to_its_end(function: Callable[[], Result]) -> Result:
    """Run blocking code in a thread; a cancellation waits for it, so that nothing happens after we are gone."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _ignore(_: Report) -> None:
    return
