"""Done means verified. ffmpeg's status 0 says nothing: half a Matroska file gives status 0 and half the length.

Before the work, the source's claim is held against what can be read; after it, the output against that.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from peerd.workers.video.binaries import Tools
from peerd.workers.video.errors import EncoderFailed, MediaDamaged, MediaTooLarge, MediaUnreadable, OutputWrong
from peerd.workers.video.ffmpeg import Finished, Job, OnReport, run_ffmpeg
from peerd.workers.video.media import Media, Survey
from peerd.workers.video.plan import TranscodePlan
from peerd.workers.video.poster_plan import PosterPlan
from peerd.workers.video.probing import probe
from peerd.workers.video.settings import VideoSettings

_OUR_FORMATS = ("mov", "mp4")
_PICTURE_FORMATS = ("jpeg_pipe", "mjpeg", "image2")
_SECONDS_OFF = 0.5
_SHARE_OFF = 0.002
# A container's own duration is often an estimate; what we counted is not.
_CLAIM_SHARE_OFF = 0.01
_FRAMES_OFF = 3


class Proof(msgspec.Struct, frozen=True):
    """What the output was found to be."""

    duration: float
    frames: int
    width: int
    height: int
    video_codec: str
    audio_codec: str | None


def find_damage(media: Media, seen: Survey) -> str | None:
    """Say how the source falls short of its own claim, or None when it does not."""
    if media.duration is None:
        return None
    missing = media.duration - seen.readable
    if missing <= _SECONDS_OFF + media.duration * _CLAIM_SHARE_OFF:
        return None
    share = 100 * seen.readable / media.duration
    return f"it claims {media.duration:.2f} s, but only {seen.readable:.2f} s ({share:.0f} %) can be read"


def require_frames(seen: Survey, source: str) -> None:
    """Refuse a file whose picture has not one frame. Raises MediaUnreadable."""
    if seen.frames == 0:
        raise MediaUnreadable(source=source, reason="not one frame of its picture can be read")


def require_short_enough(seen: Survey, source: str, settings: VideoSettings) -> None:
    """Hold the limit of time against what was read; a header may claim less, or nothing. Raises MediaTooLarge."""
    if seen.readable > settings.max_duration:
        need, limit = f"{seen.readable:.0f} seconds", f"{settings.max_duration:.0f}"
        raise MediaTooLarge(source=source, need=need, limit=limit, option="max_duration")


async def verify_transcode(
    tools: Tools, path: Path, plan: TranscodePlan, source: str, settings: VideoSettings, on_report: OnReport
) -> tuple[Proof, list[str]]:
    """Probe the output and decode all of it; return what it is, and where it differs from the plan.

    Raises OutputWrong when it cannot be decoded from end to end.
    """
    media = await _probe_output(tools, path, source, settings)
    decoded = await _decode(tools, path, source, settings, media.duration or 0.0, on_report)
    if media.video is None or media.video.frames is None:
        raise OutputWrong(source=source, reason="it has no picture")
    if decoded.report.frames != media.video.frames:
        reason = f"{decoded.report.frames} of its {media.video.frames} frames decode"
        raise OutputWrong(source=source, reason=reason)
    proof = Proof(
        duration=media.duration or 0.0,
        frames=media.video.frames,
        width=media.video.displayed[0],
        height=media.video.displayed[1],
        video_codec=media.video.codec,
        audio_codec=media.audio.codec if media.audio else None,
    )
    return proof, differences(plan, media)


def differences(plan: TranscodePlan, output: Media) -> list[str]:
    """Say where the output is not what the plan expects; an empty list is the proof.

    The tolerances: half a second and 0.2 % of the time (edges, and the encoder's padding of sound), 3 frames and
    the share that the source's codec makes uncertain.
    """
    video, expected = output.video, plan.expected
    if video is None:
        return ["it has no picture"]
    found = []
    if video.displayed != (plan.width, plan.height) or (video.width, video.height) != (plan.width, plan.height):
        found.append(f"it is {video.width}x{video.height} instead of {plan.width}x{plan.height}")
    if (video.codec, video.pixel_format) != ("h264", "yuv420p"):
        found.append(f"its picture is {video.codec} {video.pixel_format}")
    found += _differs("picture", video.duration, expected.video)
    if expected.audio is None and output.audio is not None:
        found.append("it has sound, which was not asked for")
    elif expected.audio is not None:
        found += _differs("sound", output.audio.duration if output.audio else None, expected.audio)
    found += _differs("whole", output.duration, expected.duration)
    fewest = expected.frames * (1 - expected.frames_may_miss) - _FRAMES_OFF
    most = expected.frames * 1.01 + _FRAMES_OFF
    if not fewest <= (video.frames or 0) <= most:
        found.append(f"it has {video.frames} frames, the source {expected.frames}")
    return found


def _differs(what: str, found: float | None, wanted: float) -> list[str]:
    if found is None:
        return [f"it has no {what}"]
    if abs(found - wanted) <= _SECONDS_OFF + wanted * _SHARE_OFF:
        return []
    return [f"its {what} lasts {found:.2f} s, the source's {wanted:.2f} s"]


def judge(source: str, encoded: Finished, found: list[str], settings: VideoSettings) -> None:
    """Pass, or raise: MediaDamaged when the source's errors explain it, OutputWrong when nothing does."""
    first = encoded.errors[0] if encoded.errors else ""
    if encoded.error_count > settings.max_errors:
        found = [f"{encoded.error_count} errors while it was decoded ({first})", *found]
        raise MediaDamaged(source=source, reason="; ".join(found))
    if found and encoded.error_count:
        raise MediaDamaged(source=source, reason=f"{'; '.join(found)} ({first})")
    if found:
        raise OutputWrong(source=source, reason="; ".join(found))


async def verify_poster(tools: Tools, path: Path, plan: PosterPlan, source: str, settings: VideoSettings) -> None:
    """Decode the picture and hold its size against the plan. Raises OutputWrong."""
    media = await _probe_output(tools, path, source, settings, formats=_PICTURE_FORMATS)
    if media.video is None or (media.video.width, media.video.height) != (plan.width, plan.height):
        raise OutputWrong(source=source, reason=f"the picture is not {plan.width}x{plan.height}")
    await _decode(tools, path, source, settings, 0.0, _ignore, formats=_PICTURE_FORMATS)


async def _probe_output(
    tools: Tools, path: Path, source: str, settings: VideoSettings, formats: tuple[str, ...] = _OUR_FORMATS
) -> Media:
    try:
        return await probe(tools, path, source, settings, formats)
    except MediaUnreadable as error:
        raise OutputWrong(source=source, reason=f"it cannot be opened ({error.data['reason']})") from error


async def _decode(
    tools: Tools,
    path: Path,
    source: str,
    settings: VideoSettings,
    total: float,
    on_report: OnReport,
    formats: tuple[str, ...] = _OUR_FORMATS,
) -> Finished:
    job = Job(
        source=source,
        doing="checking the output of",
        input=path,
        before_input=("-xerror",),
        arguments=("-map", "0", "-fps_mode", "passthrough"),
        output=None,
        total=total,
        formats=formats,
    )
    try:
        finished = await run_ffmpeg(tools, job, settings, on_report)
    except (MediaDamaged, EncoderFailed) as error:
        raise OutputWrong(source=source, reason=f"it does not decode ({error.data['reason']})") from error
    if finished.error_count:
        raise OutputWrong(source=source, reason=f"it decodes with errors ({finished.errors[0]})")
    return finished


async def _ignore(_: object) -> None:
    return
