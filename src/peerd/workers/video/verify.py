"""Done means verified. ffmpeg's status 0 says nothing: half a Matroska file gives status 0 and half the length.

Before the work, the source's claim is held against what can be read; after it, the output against that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from peerd.workers.video.errors import (
    EncoderFailed,
    MediaDamaged,
    MediaTooLarge,
    MediaUnreadable,
    OutputWrong,
    PartlyReadable,
)
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.media import Media, Survey
from peerd.workers.video.plan import TIME_BASE, TranscodePlan
from peerd.workers.video.poster_plan import PosterPlan
from peerd.workers.video.programs.ffmpeg import FfmpegJob, FfmpegResult, OnProgress, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import FfmpegTools
from peerd.workers.video.programs.ffprobe import probe
from peerd.workers.video.settings import VideoSettings

_OUTPUT_FORMATS = ("mov", "mp4")
_PICTURE_FORMATS = ("jpeg_pipe", "mjpeg", "image2")
_SECONDS_TOLERANCE = 0.5
_SHARE_TOLERANCE = 0.002
# A container's own duration is often an estimate; what we counted is not.
_CLAIM_TOLERANCE = 0.01
# A share of a long film is minutes; no estimate is that bad.
_MAX_SECONDS_TOLERANCE = 5.0
_FRAMES_TOLERANCE = 3


class Verification(msgspec.Struct, frozen=True):
    """What the output was found to be."""

    duration: float
    frames: int
    width: int
    height: int
    video_codec: str
    audio_codec: str | None


def find_damage(media: Media, measured: Survey) -> str | None:
    """Say how the source falls short of its own claim, or None when it does not."""
    if media.duration is None:
        return None
    if (missing_seconds(media, measured) or 0.0) <= _tolerated(media.duration, _CLAIM_TOLERANCE):
        return None
    share = min(round(100 * measured.readable / media.duration), 99)
    return f"it claims {media.duration:.2f} s, but only {measured.readable:.2f} s ({share} %) can be read"


def missing_seconds(media: Media, measured: Survey) -> float | None:
    """Return the seconds by which the source falls short of its own claim, at least 0; None when it claims nothing."""
    return None if media.duration is None else max(0.0, media.duration - measured.readable)


def _tolerated(duration: float, share: float) -> float:
    return min(_SECONDS_TOLERANCE + duration * share, _MAX_SECONDS_TOLERANCE)


def require_frames(measured: Survey, source: str) -> None:
    """Refuse a file whose picture has not one frame. Raises MediaUnreadable."""
    if measured.frames == 0:
        raise MediaUnreadable(source=source, reason="not one frame of its picture can be read")


def require_short_enough(measured: Survey, source: str, settings: VideoSettings) -> None:
    """Hold the limit of time against what was read; a header may claim less, or nothing. Raises MediaTooLarge."""
    if measured.readable > settings.max_duration:
        need, limit = f"{measured.readable:.0f} seconds", f"{settings.max_duration:.0f}"
        raise MediaTooLarge(source=source, need=need, limit=limit, option="max_duration")


async def verify_transcode(
    tools: FfmpegTools,
    file: FileDescriptor,
    plan: TranscodePlan,
    source: str,
    settings: VideoSettings,
    on_report: OnProgress,
) -> tuple[Verification, list[str]]:
    """Probe the output and decode all of it; return what it is, and where it differs from the plan.

    Raises OutputWrong when it cannot be decoded from end to end.
    """
    media = await _probe_output(tools, file, source, settings)
    decoded = await _decode(tools, file, source, settings, media.duration or 0.0, on_report)
    if media.video is None or media.video.frames is None:
        raise OutputWrong(source=source, reason="it has no picture")
    if decoded.report.frames != media.video.frames:
        reason = f"{decoded.report.frames} of its {media.video.frames} frames decode"
        raise OutputWrong(source=source, reason=reason)
    verified = Verification(
        duration=media.duration or 0.0,
        frames=media.video.frames,
        width=media.video.displayed[0],
        height=media.video.displayed[1],
        video_codec=media.video.codec,
        audio_codec=media.audio.codec if media.audio else None,
    )
    return verified, find_differences(plan, media)


def find_differences(plan: TranscodePlan, output: Media) -> list[str]:
    """Say where the output is not what the plan expects; an empty list is the proof.

    The tolerances: half a second and 0.2 % of the time, 5 s at most (edges, and the encoder's padding of sound), 3
    frames and the share that the source's codec makes uncertain.
    """
    video, expected = output.video, plan.expected
    if video is None:
        return ["it has no picture"]
    found = []
    if video.displayed != (plan.width, plan.height) or (video.width, video.height) != (plan.width, plan.height):
        found.append(f"it is {video.width}x{video.height} instead of {plan.width}x{plan.height}")
    if (video.codec, video.pixel_format) != ("h264", "yuv420p"):
        found.append(f"its picture is {video.codec} {video.pixel_format}")
    found += _duration_difference("picture", video.duration, expected.video)
    if expected.audio is None and output.audio is not None:
        found.append("it has sound, which was not asked for")
    elif expected.audio is not None:
        found += _duration_difference("sound", output.audio.duration if output.audio else None, expected.audio)
    found += _duration_difference("whole", output.duration, expected.duration)
    fewest = expected.frames * (1 - expected.frame_tolerance) - _FRAMES_TOLERANCE
    most = expected.frames * 1.01 + _FRAMES_TOLERANCE
    if not fewest <= (video.frames or 0) <= most:
        found.append(f"it has {video.frames} frames, the source {expected.frames}")
    return found


def _duration_difference(what: str, found: float | None, wanted: float) -> list[str]:
    if found is None:
        return [f"it has no {what}"]
    if abs(found - wanted) <= _tolerated(wanted, _SHARE_TOLERANCE):
        return []
    return [f"its {what} lasts {found:.2f} s, the source's {wanted:.2f} s"]


def require_match(
    source: str, encoded: FfmpegResult, found: list[str], measured: Survey, settings: VideoSettings
) -> None:
    """Pass, or raise: PartlyReadable when something that is wrong with the source explains it, else OutputWrong."""
    faults = source_faults(encoded, measured)
    if encoded.error_count > settings.max_errors:
        raise PartlyReadable(source=source, reason="; ".join([*faults, *found]))
    if found and faults:
        raise PartlyReadable(source=source, reason="; ".join([*found, *faults]))
    if found:
        raise OutputWrong(source=source, reason="; ".join(found))


@contextlib.contextmanager
def attributing_to_source(source: str, encoded: FfmpegResult, measured: Survey) -> Iterator[None]:
    """Turn OutputWrong into MediaDamaged when something that is wrong with the source explains it."""
    try:
        yield
    except OutputWrong as error:
        faults = source_faults(encoded, measured)
        if faults:
            reason = "; ".join([*faults, f"of its output, {error.data['reason']}"])
            raise MediaDamaged(source=source, reason=reason) from error
        raise


def source_faults(encoded: FfmpegResult, measured: Survey) -> list[str]:
    """Say what is wrong with a source that was encoded, and may explain an output that is not as it should be."""
    faults = []
    if encoded.error_count:
        faults.append(f"{encoded.error_count} errors while it was decoded ({encoded.errors[0]})")
    if measured.jumps:
        faults.append(f"its times run backwards or leap ahead, {measured.jumps} times")
    return faults


async def verify_poster(
    tools: FfmpegTools, file: FileDescriptor, plan: PosterPlan, source: str, settings: VideoSettings
) -> None:
    """Decode the picture and hold its size against the plan. Raises OutputWrong."""
    media = await _probe_output(tools, file, source, settings, formats=_PICTURE_FORMATS)
    if media.video is None or (media.video.width, media.video.height) != (plan.width, plan.height):
        raise OutputWrong(source=source, reason=f"the picture is not {plan.width}x{plan.height}")
    await _decode(tools, file, source, settings, 0.0, _ignore, formats=_PICTURE_FORMATS)


async def _probe_output(
    tools: FfmpegTools,
    file: FileDescriptor,
    source: str,
    settings: VideoSettings,
    formats: tuple[str, ...] = _OUTPUT_FORMATS,
) -> Media:
    try:
        return await probe(tools, file, source, settings, formats)
    except MediaUnreadable as error:
        raise OutputWrong(source=source, reason=f"it cannot be opened ({error.data['reason']})") from error


async def _decode(
    tools: FfmpegTools,
    file: FileDescriptor,
    source: str,
    settings: VideoSettings,
    total: float,
    on_report: OnProgress,
    formats: tuple[str, ...] = _OUTPUT_FORMATS,
) -> FfmpegResult:
    job = FfmpegJob(
        source=source,
        doing="checking the output of",
        input=file,
        before_input=("-xerror",),
        # With the time base of an average rate, frames that are close to each other would collide.
        arguments=("-map", "0", "-fps_mode", "passthrough", "-enc_time_base:v", TIME_BASE),
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
