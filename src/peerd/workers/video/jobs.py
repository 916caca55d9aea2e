"""The three handlers: probe, transcode, poster. Each reads as the list of what happens."""

from __future__ import annotations

import time
from typing import Any

from peerd.workers.video.environment import JobContext, JobEnvironment
from peerd.workers.video.errors import PartlyReadable
from peerd.workers.video.files.paths import default_output
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.plan import TranscodePlan, TranscodeRequest, check_request, plan_transcode
from peerd.workers.video.poster_plan import check_poster, plan_poster
from peerd.workers.video.programs.ffmpeg import OnProgress
from peerd.workers.video.programs.progress import FfmpegProgress
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


async def probe(ctx: JobContext, source: str) -> dict[str, Any]:
    """Say what a file is: container, duration, picture, sound. Reads the headers only.

    ``source``: a name below the media directory.
    """
    environment = await JobEnvironment.open(ctx)
    with environment.reading(source) as file:
        media, video = await environment.probe_source(file, source)
    return {"source": source, **_describe(media, video)}


async def transcode(
    ctx: JobContext,
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
    seconds it took, ffmpeg's version, ``missing_seconds`` (the seconds by which the source falls short of its own
    claim) and ``damage`` (None unless salvaged).
    """
    started = time.monotonic()
    request = TranscodeRequest(height=height, max_fps=max_fps, quality=quality, audio=audio)
    check_request(request)
    environment = await JobEnvironment.open(ctx)
    wanted = output or default_output(source, f"-{height}p.mp4")
    with environment.open_job_files(source, wanted, ".mp4") as (file, output_file, target):
        await ctx.progress(0.0, "reading the source")
        media, measured = await environment.survey_source(file, source, audio=audio)
        damage = find_damage(media, measured)
        if damage and not salvage:
            raise PartlyReadable(source=source, reason=damage)
        plan = plan_transcode(media, measured, request)
        encoded = await environment.encode(
            file, output_file, plan, source, _progress_reporter(ctx, 0.0, _ENCODED_FRACTION, plan)
        )
        checked = _progress_reporter(ctx, _ENCODED_FRACTION, _CHECKED_FRACTION, None)
        with attributing_to_source(source, encoded, measured):
            verified, found = await verify_transcode(
                environment.tools, output_file, plan, source, environment.settings, checked
            )
        if salvage:
            damage = "; ".join([*([damage] if damage else []), *found, *encoded.errors[:3]]) or None
        else:
            require_match(source, encoded, found, measured, environment.settings)
        await ctx.progress(_CHECKED_FRACTION, "publishing")
        size, sha256 = await environment.publish(output_file, target)
    await ctx.progress(1.0, f"{verified.width}x{verified.height}, {verified.duration:.1f} s, {size / 1e6:.1f} MB")
    return {
        "source": source,
        "output": target.relative,
        "size": size,
        "width": verified.width,
        "height": verified.height,
        "duration": round(verified.duration, 3),
        "frames": verified.frames,
        "video_codec": verified.video_codec,
        "audio_codec": verified.audio_codec,
        "sha256": sha256,
        "seconds": round(time.monotonic() - started, 3),
        "ffmpeg": environment.tools.version,
        "decode_errors": encoded.error_count,
        "missing": None if (short := missing_seconds(media, measured)) is None else round(short, 3),
        "damage": damage,
    }


async def poster(
    ctx: JobContext, source: str, output: str | None = None, at: float | None = None, height: int = 720
) -> dict[str, Any]:
    """Take one picture of a video as a JPEG, verify it, publish it.

    ``at``: seconds from the start; by default the most typical picture from a tenth of the way in. ``output``: a
    name that ends in .jpg, by default ``clip-poster.jpg`` beside the source. ``height`` bounds its height.
    """
    started = time.monotonic()
    check_poster(height, at)
    environment = await JobEnvironment.open(ctx)
    with environment.open_job_files(source, output or default_output(source, "-poster.jpg"), ".jpg") as (
        file,
        output_file,
        target,
    ):
        media, video = await environment.probe_source(file, source)
        environment.require_tone_mapping(video, source)
        plan = plan_poster(media, height, at)
        await environment.encode_poster(file, output_file, plan, source)
        await verify_poster(environment.tools, output_file, plan, source, environment.settings)
        size, sha256 = await environment.publish(output_file, target)
    await ctx.progress(1.0, f"{plan.width}x{plan.height}")
    return {
        "source": source,
        "output": target.relative,
        "size": size,
        "width": plan.width,
        "height": plan.height,
        "at": round(plan.at, 3),
        "sha256": sha256,
        "seconds": round(time.monotonic() - started, 3),
        "ffmpeg": environment.tools.version,
    }


def _progress_reporter(ctx: JobContext, begin: float, end: float, plan: TranscodePlan | None) -> OnProgress:
    async def report(now: FfmpegProgress) -> None:
        note = now.format_note(plan.expected.duration) if plan is not None else "checking the output"
        await ctx.progress(begin + (end - begin) * now.fraction, note)

    return report


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
            "sample_aspect": f"{video.sample_aspect.numerator}:{video.sample_aspect.denominator}",
            "rotation": video.rotation,
            "frame_rate": round(float(video.frame_rate), 3) if video.frame_rate is not None else None,
            "frames": video.frames,
            "pixel_format": video.pixel_format,
            "interlaced": video.interlaced,
            "hdr": video.is_hdr,
        },
        "audio": (
            {"codec": sound.codec, "channels": sound.channels, "sample_rate": sound.sample_rate} if sound else None
        ),
    }
