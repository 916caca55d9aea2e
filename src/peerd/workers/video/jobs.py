"""The three handlers: probe, transcode, poster. Each reads as the list of what happens."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from peerd.workers.video.binaries import Tools, find_tools
from peerd.workers.video.errors import MediaDamaged, PathRefused, SourceChanged, ToolLacks
from peerd.workers.video.ffmpeg import Finished, Job, OnReport, run_ffmpeg
from peerd.workers.video.media import Media, Survey, VideoStream
from peerd.workers.video.paths import MediaDirectory, default_output
from peerd.workers.video.plan import (
    PosterPlan,
    TranscodePlan,
    TranscodeRequest,
    as_ratio,
    frame_rate_of,
    plan_poster,
    plan_transcode,
    poster_arguments,
    transcode_arguments,
)
from peerd.workers.video.probing import probe as probe_file
from peerd.workers.video.probing import require_acceptable, survey
from peerd.workers.video.progress import Report
from peerd.workers.video.publish import PrivateFolder, digest, publish
from peerd.workers.video.settings import VideoSettings, read_settings
from peerd.workers.video.verify import (
    find_damage,
    judge,
    require_frames,
    require_short_enough,
    verify_poster,
    verify_transcode,
)

_ENCODED = 0.9  # of the work, when the encoder is done; checking decodes everything once more
_CHECKED = 0.99

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


async def probe(ctx: Context, source: str) -> dict[str, Any]:
    """Say what a file is: container, duration, picture, sound. Reads the headers only.

    ``source``: a name below the media directory.
    """
    bench = await Bench.open(ctx)
    async with bench.reading(source) as (link, _):
        media = await probe_file(bench.tools, link, source, bench.settings)
        video = require_acceptable(media, source, bench.settings, audio=False)
    return {"source": source, **_describe(media, video)}


async def transcode(
    ctx: Context,
    source: str,
    output: str | None = None,
    height: int = 720,
    *,
    max_fps: int = 60,
    quality: str = "standard",
    audio: bool = True,
    salvage: bool = False,
) -> dict[str, Any]:
    """Make an MP4 of H.264 and AAC, verify it, publish it.

    ``source`` and ``output`` are names below the media directory; by default the output lies beside the source as
    ``clip-720p.mp4``. ``height`` bounds the picture's height in pixels and ``max_fps`` its frames per second;
    nothing is enlarged. ``quality``: draft, standard or high. ``audio`` false leaves the sound out. ``salvage``
    keeps what is readable of a damaged source instead of refusing it.

    Returns the output's name, size in bytes, width, height, duration in seconds, frames, codecs, SHA-256, the
    seconds it took, ffmpeg's version, and ``damage`` (None unless salvaged).
    """
    started = time.monotonic()
    bench = await Bench.open(ctx)
    request = TranscodeRequest(height=height, max_fps=max_fps, quality=quality, audio=audio)
    place = bench.files.place_output(output or default_output(source, f"-{height}p.mp4"), ".mp4")
    async with bench.reading(source, place) as (link, folder):
        await ctx.progress(0.0, "reading the source")
        media, seen = await bench.examine(link, source, audio=audio)
        damage = find_damage(media, seen)
        if damage and not salvage:
            raise MediaDamaged(source=source, reason=damage)
        plan = plan_transcode(media, seen, request)
        made = folder.path / "output.mp4"
        encoded = await bench.encode(link, made, plan, source, _reporter(ctx, 0.0, _ENCODED, plan))
        checked = _reporter(ctx, _ENCODED, _CHECKED, None)
        proof, found = await verify_transcode(bench.tools, made, plan, source, bench.settings, checked)
        if salvage:
            damage = "; ".join([*([damage] if damage else []), *found, *encoded.errors[:3]]) or None
        else:
            judge(source, encoded, found, bench.settings)
        await ctx.progress(_CHECKED, "publishing")
        size, sha256 = await bench.publish(made, place)
    await ctx.progress(1.0, f"{proof.width}x{proof.height}, {proof.duration:.1f} s, {size / 1e6:.1f} MB")
    return {
        "source": source,
        "output": bench.files.relative(place),
        "size": size,
        "width": proof.width,
        "height": proof.height,
        "duration": round(proof.duration, 3),
        "frames": proof.frames,
        "video_codec": proof.video_codec,
        "audio_codec": proof.audio_codec,
        "sha256": sha256,
        "seconds": round(time.monotonic() - started, 3),
        "ffmpeg": bench.tools.version,
        "decode_errors": encoded.error_count,
        "damage": damage,
    }


async def poster(
    ctx: Context, source: str, output: str | None = None, at: float | None = None, height: int = 720
) -> dict[str, Any]:
    """Take one picture of a video as a JPEG, verify it, publish it.

    ``at``: seconds from the start; by default the most typical picture from a tenth of the way in. ``output``: a
    name that ends in .jpg, by default ``clip-poster.jpg`` beside the source. ``height`` bounds its height.
    """
    started = time.monotonic()
    bench = await Bench.open(ctx)
    place = bench.files.place_output(output or default_output(source, "-poster.jpg"), ".jpg")
    async with bench.reading(source, place) as (link, folder):
        media = await probe_file(bench.tools, link, source, bench.settings)
        require_acceptable(media, source, bench.settings, audio=False)
        plan = plan_poster(media, height, at)
        made = folder.path / "output.jpg"
        await bench.take_picture(link, made, plan, source)
        await verify_poster(bench.tools, made, plan, source, bench.settings)
        size, sha256 = await bench.publish(made, place)
    await ctx.progress(1.0, f"{plan.width}x{plan.height}")
    return {
        "source": source,
        "output": bench.files.relative(place),
        "size": size,
        "width": plan.width,
        "height": plan.height,
        "at": round(plan.at, 3),
        "sha256": sha256,
        "seconds": round(time.monotonic() - started, 3),
        "ffmpeg": bench.tools.version,
    }


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


def _reporter(ctx: Context, begin: float, end: float, plan: TranscodePlan | None) -> OnReport:
    async def report(now: Report) -> None:
        note = now.words(plan.expected.duration) if plan is not None else "checking the output"
        await ctx.progress(begin + (end - begin) * now.fraction, note)

    return report


async def _ignore(_: Report) -> None:
    return


def _describe(media: Media, video: VideoStream) -> dict[str, Any]:
    width, height = video.displayed
    sound = media.audio
    return {
        "format": media.format,
        "size": media.size,
        "duration": media.duration,
        "video": {
            "codec": video.codec,
            "width": width,
            "height": height,
            "stored_width": video.width,
            "stored_height": video.height,
            "sample_aspect": as_ratio(video.sample_aspect),
            "rotation": video.rotation,
            "frame_rate": frame_rate_of(video),
            "frames": video.frames,
            "pixel_format": video.pixel_format,
            "interlaced": video.interlaced,
            "hdr": video.is_hdr,
        },
        "audio": (
            {"codec": sound.codec, "channels": sound.channels, "sample_rate": sound.sample_rate} if sound else None
        ),
    }
