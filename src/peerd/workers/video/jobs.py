"""The three handlers: probe, transcode, poster. Each reads as the list of what happens."""

from __future__ import annotations

import time
from typing import Any

from peerd.workers.video.environment import Bench, Context
from peerd.workers.video.errors import PartlyReadable
from peerd.workers.video.files.paths import default_output
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.plan import TranscodePlan, TranscodeRequest, check_request, plan_transcode
from peerd.workers.video.poster_plan import check_poster, plan_poster
from peerd.workers.video.programs.ffmpeg import OnReport
from peerd.workers.video.programs.progress import Report
from peerd.workers.video.verify import (
    blaming_the_source,
    find_damage,
    judge,
    missing,
    verify_poster,
    verify_transcode,
)

_ENCODED = 0.9  # of the work, when the encoder is done; checking decodes everything once more
_CHECKED = 0.99


async def probe(ctx: Context, source: str) -> dict[str, Any]:
    """Say what a file is: container, duration, picture, sound. Reads the headers only.

    ``source``: a name below the media directory.
    """
    bench = await Bench.open(ctx)
    with bench.reading(source) as file:
        media, video = await bench.look_at(file, source)
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
    seconds it took, ffmpeg's version, ``missing`` (the seconds by which the source falls short of its own claim) and
    ``damage`` (None unless salvaged).
    """
    started = time.monotonic()
    request = TranscodeRequest(height=height, max_fps=max_fps, quality=quality, audio=audio)
    check_request(request)
    bench = await Bench.open(ctx)
    wanted = output or default_output(source, f"-{height}p.mp4")
    with bench.working(source, wanted, ".mp4") as (file, made, place):
        await ctx.progress(0.0, "reading the source")
        media, seen = await bench.examine(file, source, audio=audio)
        damage = find_damage(media, seen)
        if damage and not salvage:
            raise PartlyReadable(source=source, reason=damage)
        plan = plan_transcode(media, seen, request)
        encoded = await bench.encode(file, made, plan, source, _reporter(ctx, 0.0, _ENCODED, plan))
        checked = _reporter(ctx, _ENCODED, _CHECKED, None)
        with blaming_the_source(source, encoded, seen):
            proof, found = await verify_transcode(bench.tools, made, plan, source, bench.settings, checked)
        if salvage:
            damage = "; ".join([*([damage] if damage else []), *found, *encoded.errors[:3]]) or None
        else:
            judge(source, encoded, found, seen, bench.settings)
        await ctx.progress(_CHECKED, "publishing")
        size, sha256 = await bench.publish(made, place)
    await ctx.progress(1.0, f"{proof.width}x{proof.height}, {proof.duration:.1f} s, {size / 1e6:.1f} MB")
    return {
        "source": source,
        "output": place.relative,
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
        "missing": None if (short := missing(media, seen)) is None else round(short, 3),
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
    check_poster(height, at)
    bench = await Bench.open(ctx)
    with bench.working(source, output or default_output(source, "-poster.jpg"), ".jpg") as (file, made, place):
        media, video = await bench.look_at(file, source)
        bench.require_tone_map_for(video, source)
        plan = plan_poster(media, height, at)
        await bench.take_picture(file, made, plan, source)
        await verify_poster(bench.tools, made, plan, source, bench.settings)
        size, sha256 = await bench.publish(made, place)
    await ctx.progress(1.0, f"{plan.width}x{plan.height}")
    return {
        "source": source,
        "output": place.relative,
        "size": size,
        "width": plan.width,
        "height": plan.height,
        "at": round(plan.at, 3),
        "sha256": sha256,
        "seconds": round(time.monotonic() - started, 3),
        "ffmpeg": bench.tools.version,
    }


def _reporter(ctx: Context, begin: float, end: float, plan: TranscodePlan | None) -> OnReport:
    async def report(now: Report) -> None:
        note = now.words(plan.expected.duration) if plan is not None else "checking the output"
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
