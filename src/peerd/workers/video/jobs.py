"""The three handlers: probe, transcode, poster, and the environment of a job that they share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Protocol, Self

from peerd.workers.video.errors import MediaRefused, PartlyReadable, SourceChanged
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.files.paths import MediaDirectory, NamedEntry, SourceFile
from peerd.workers.video.files.publish import OutputFile, PrivateFolder, publish, sha256_of
from peerd.workers.video.media import Media
from peerd.workers.video.plan import TranscodePlan, TranscodeRequest, check_request, plan_transcode, transcode_arguments
from peerd.workers.video.poster import check_poster, plan_poster, take_picture
from peerd.workers.video.programs.ffmpeg import FfmpegJob, FfmpegProgress, FfmpegResult, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools, ProgramContext, find_tools
from peerd.workers.video.settings import VideoSettings, read_settings
from peerd.workers.video.source import look_at_start, probe_source, survey_source
from peerd.workers.video.verify import (
    attributing_to_source,
    find_damage,
    missing_seconds,
    require_match,
    verify_poster,
    verify_transcode,
)

_ENCODED_FRACTION = 0.9  # of the work, when the encoder is done; checking decodes everything once more
_CHECKED_FRACTION = 0.99


class JobContext(Protocol):
    """The part of `peerd.JobContext` that the handlers use; the tests have an implementation of their own."""

    @property
    def options(self) -> Mapping[str, Any]:
        """``[workers.video.options]``."""

    @property
    def task(self) -> Any:
        """The task's row; its ``id`` names the private folder, its ``lease`` tells a later attempt from the first."""

    def progress(self, fraction: float, note: str | None = None) -> Awaitable[None]:
        """Record the task's progress."""


async def probe(ctx: JobContext, source: str) -> dict[str, Any]:
    """Describe a file: container, duration, picture, sound. Reads the headers only.

    ``source``: a name below the media directory.
    """
    environment = await JobEnvironment.open(ctx, source)
    with environment.reading() as file:
        media = await probe_source(environment.programs, file)
        environment.require_unchanged(file)
    return {"source": source, **_describe(media)}


async def transcode(  # noqa: PLR0913 - what a task may say
    ctx: JobContext,
    source: str,
    output: str | None = None,
    height: int = 720,
    *,
    max_fps: int = 60,
    quality: str = "standard",
    audio: bool = True,
    salvage: bool = False,
    replace: bool = False,
) -> dict[str, Any]:
    """Make an MP4 of H.264 and AAC, verify it, publish it.

    ``source`` and ``output`` are names below the media directory; by default the output is placed beside the source as
    ``clip.mov-720p.mp4``. ``height`` bounds the picture's height in pixels and ``max_fps`` its frames per second;
    nothing is enlarged. ``quality``: draft, standard or high. ``audio`` false leaves the sound out. ``salvage``
    keeps what is readable of a damaged source instead of refusing it. ``replace`` replaces a file of the output's name,
    which is refused otherwise.

    Returns the output's name, size in bytes, width, height, duration in seconds, frames, codecs, SHA-256, the
    seconds it took, ffmpeg's version, ``decode_errors``, ``missing`` (the seconds by which the source is shorter than
    it claims), ``damage`` (None unless salvaged), ``left_out`` (the streams that were not used) and ``source_size``.
    """
    request = TranscodeRequest(height=height, max_fps=max_fps, quality=quality, audio=audio)
    check_request(request)
    environment = await JobEnvironment.open(ctx, source, replace=replace)
    with environment.open_job_files(output, f"-{height}p.mp4") as (file, output_file, target):
        await ctx.progress(0.0, "reading the source")
        media, timeline = await survey_source(environment.programs, file, audio=audio, max_fps=max_fps)
        damage = find_damage(media, timeline)
        if damage and not salvage:
            raise PartlyReadable(source=source, reason=damage)
        plan = plan_transcode(media, timeline, request)
        encoded = (await environment.encode(ctx, file, output_file, plan)).without_first(timeline.lost_errors)
        with attributing_to_source(source, encoded, timeline):
            verified, found = await environment.verify(ctx, output_file, plan)
        if salvage:
            damage = "; ".join([*([damage] if damage else []), *found, *encoded.errors[:3]]) or None
        else:
            require_match(source, encoded, found, timeline, environment.settings)
        await ctx.progress(_CHECKED_FRACTION, "publishing")
        published = await environment.publish(file, output_file, target)
    await ctx.progress(
        1.0, "{width}x{height}, {duration:.1f} s, {size} MB".format(**verified, size=round(published["size"] / 1e6, 1))
    )
    return {
        **published,
        **verified,
        "decode_errors": encoded.error_count,
        "missing": None if (short := missing_seconds(media, timeline)) is None else round(short, 3),
        "damage": damage,
        "left_out": list(media.left_out),
        "source_size": media.size,
    }


async def poster(
    ctx: JobContext,
    source: str,
    output: str | None = None,
    at: float | None = None,
    height: int = 720,
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Take one picture of a video as a JPEG, verify it, publish it.

    ``at``: seconds from the start; by default the most typical picture from a tenth of the way in. ``output``: a
    name that ends in .jpg, by default ``clip.mov-poster.jpg`` beside the source. ``height`` bounds its height.
    ``replace`` replaces a file of that name, which is refused otherwise.
    """
    check_poster(height, at)
    environment = await JobEnvironment.open(ctx, source, replace=replace)
    with environment.open_job_files(output, "-poster.jpg") as (file, output_file, target):
        media = await probe_source(environment.programs, file)
        media = await look_at_start(environment.programs, file, media)
        taken = await take_picture(environment.programs, file, output_file, media, plan_poster(media, height, at))
        width, height = await verify_poster(environment.programs, output_file, height)
        published = await environment.publish(file, output_file, target)
    await ctx.progress(1.0, f"{width}x{height}")
    return {**published, "width": width, "height": height, "at": round(taken, 3)}


class JobEnvironment:
    """The settings, programs and files of one job."""

    def __init__(self, settings: VideoSettings, tools: FfmpegTools, source: str, task: Any, *, replace: bool) -> None:
        self.settings = settings
        self.programs = ProgramContext(tools, settings, source)
        self._files = MediaDirectory(settings.directory)
        self._source = source
        self._task = task
        self._replace = replace
        self._started_at = time.monotonic()

    @classmethod
    async def open(cls, ctx: JobContext, source: str, *, replace: bool = False) -> Self:
        """Read the worker's options and find the tools; ``replace``: the output may replace a file of its name.

        Raises Misconfigured, ToolsMissing.
        """
        settings = read_settings(ctx.options)
        return cls(settings, await asyncio.to_thread(find_tools), source, ctx.task, replace=replace)

    @contextlib.contextmanager
    def reading(self) -> Iterator[SourceFile]:
        """Open the source. SourceChanged explains a refusal: an incomplete file looks damaged, or short."""
        with self._files.open_source(self._source) as file:
            try:
                yield file
            except MediaRefused:
                self.require_unchanged(file)
                raise

    def require_unchanged(self, file: SourceFile) -> None:
        """Raise SourceChanged if the source was written or exchanged since it was opened."""
        if file.has_changed:
            raise SourceChanged(source=self._source)

    @contextlib.contextmanager
    def open_job_files(self, output: str | None, ending: str) -> Iterator[tuple[SourceFile, OutputFile, NamedEntry]]:
        """Open the source and an empty file in a private folder; the third is where that is to be published.

        ``ending``: of the output's default name.
        """
        with self.reading() as file, self._files.resolve_output(output, self._source, ending) as target:
            self._files.check_output(target, file, may_exist=self._replace or self._is_later_attempt)
            with PrivateFolder(self.settings.private, self._task.id) as folder:
                folder.require_same_file_system(target.folder, target.relative)
                with folder.create(f"output{PurePath(ending).suffix}") as output_file:
                    yield file, output_file, target

    async def encode(
        self, ctx: JobContext, file: FileDescriptor, output_file: FileDescriptor, plan: TranscodePlan
    ) -> FfmpegResult:
        """Encode as planned, and record the progress."""
        seconds = plan.expected.duration

        async def report(now: FfmpegProgress) -> None:
            await ctx.progress(_ENCODED_FRACTION * now.fraction, now.format_note(seconds))

        arguments = transcode_arguments(plan, self.settings.threads)
        return await run_ffmpeg(self.programs, FfmpegJob("encoding", file, arguments, output_file, seconds), report)

    async def verify(
        self, ctx: JobContext, output_file: FileDescriptor, plan: TranscodePlan
    ) -> tuple[dict[str, Any], list[str]]:
        """Verify the output, and record the progress."""

        async def report(now: FfmpegProgress) -> None:
            done = _ENCODED_FRACTION + (_CHECKED_FRACTION - _ENCODED_FRACTION) * now.fraction
            await ctx.progress(done, "checking the output")

        return await verify_transcode(self.programs, output_file, plan, report)

    async def publish(self, file: SourceFile, output_file: OutputFile, target: NamedEntry) -> dict[str, Any]:
        """Publish a verified file under its name; return the part of the result that all outputs have.

        A cancellation waits for it, so that nothing is published after the task has ended. Of a source that changed,
        nothing is published: the next attempt has another output for the name.
        """
        size, sha256 = output_file.status.st_size, await asyncio.to_thread(sha256_of, output_file.reader())
        self.require_unchanged(file)
        earlier = sha256 if self._is_later_attempt else None
        work = asyncio.to_thread(publish, output_file, target, replace=self._replace, earlier_sha256=earlier)
        publishing = asyncio.ensure_future(work)
        try:
            await asyncio.shield(publishing)
        except asyncio.CancelledError:
            await asyncio.wait({publishing})
            raise
        return {
            "source": self._source,
            "output": target.relative,
            "size": size,
            "sha256": sha256,
            "seconds": round(time.monotonic() - self._started_at, 3),
            "ffmpeg": self.programs.tools.version,
        }

    @property
    def _is_later_attempt(self) -> bool:
        """Whether an earlier attempt may have published its output, and ended before that was recorded."""
        return bool(self._task.lease > 1)  # not `attempts`: one that was released is not counted


def _describe(media: Media) -> dict[str, Any]:
    video = media.video
    assert video is not None
    width, height = video.displayed
    sounds = [{name: getattr(each, name) for name in ("codec", "channels", "sample_rate")} for each in media.audio]
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
            "sample_aspect": f"{video.sample_aspect.numerator}:{video.sample_aspect.denominator}",
            "rotation": video.rotation,
            "frame_rate": round(float(video.frame_rate), 3) if video.frame_rate is not None else None,
            "frames": video.frames,
            "pixel_format": video.pixel_format,
            "interlaced": video.interlaced,
            "hdr": video.colours.hdr,
        },
        "audio": next(({**fields, "channels": len(sounds) * fields["channels"]} for fields in sounds), None),
        "left_out": list(media.left_out),
    }
