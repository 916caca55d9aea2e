"""Verification: the source is compared with its own claims before the work, the output with the source after it.

ffmpeg's status 0 proves nothing: half a Matroska file gives status 0 and half the length.
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
from peerd.workers.video.plan import TIME_BASE, PosterPlan, TranscodePlan
from peerd.workers.video.programs.ffmpeg import FfmpegJob, FfmpegResult, OnProgress, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe import probe
from peerd.workers.video.settings import VideoSettings

_OUTPUT_FORMATS = ("mov", "mp4")
_PICTURE_FORMATS = ("jpeg_pipe", "mjpeg", "image2")
_SECONDS_TOLERANCE = 0.5
_SHARE_TOLERANCE = 0.002
_CLAIM_TOLERANCE = 0.01  # a container's own duration is often an estimate; what was counted is not
_MAX_SECONDS_TOLERANCE = 5.0  # a share of a long film is minutes, and no estimate is that bad
_FRAMES_TOLERANCE = 3


class Verification(msgspec.Struct, frozen=True):
    """Properties of a verified output."""

    duration: float
    frames: int
    width: int
    height: int
    video_codec: str
    audio_codec: str | None


def find_damage(media: Media, measured: Survey) -> str | None:
    """Describe by how much the source is shorter than it claims; None when it is not."""
    if media.duration is None:
        return None
    if (missing_seconds(media, measured) or 0.0) <= _tolerated(media.duration, _CLAIM_TOLERANCE):
        return None
    share = min(round(100 * measured.readable / media.duration), 99)
    return f"it claims {media.duration:.2f} s, but only {measured.readable:.2f} s ({share} %) can be read"


def missing_seconds(media: Media, measured: Survey) -> float | None:
    """Return the seconds by which the source is shorter than it claims, at least 0; None when it claims nothing."""
    return None if media.duration is None else max(0.0, media.duration - measured.readable)


def _tolerated(duration: float, share: float) -> float:
    return min(_SECONDS_TOLERANCE + duration * share, _MAX_SECONDS_TOLERANCE)


def check_survey(context: ProgramContext, measured: Survey) -> None:
    """Refuse a source without frames, or longer than the limit, whatever its header claims.

    Raises MediaUnreadable, MediaTooLarge.
    """
    if measured.frames == 0:
        raise MediaUnreadable(source=context.source, reason="not one frame of its picture can be read")
    longest = context.settings.max_duration
    if measured.readable > longest:
        need = f"{measured.readable:.0f} seconds"
        raise MediaTooLarge(source=context.source, need=need, limit=f"{longest:.0f}", option="max_duration")


async def verify_transcode(
    context: ProgramContext, file: FileDescriptor, plan: TranscodePlan, on_progress: OnProgress | None = None
) -> tuple[Verification, list[str]]:
    """Probe the output and decode all of it; return its properties, and its differences from the plan.

    Raises OutputWrong when it cannot be decoded from end to end.
    """
    media = await _probe_output(context, file, _OUTPUT_FORMATS)
    decoded = await _decode(context, file, _OUTPUT_FORMATS, media.duration or 0.0, on_progress)
    if media.video is None or media.video.frames is None:
        raise OutputWrong(source=context.source, reason="it has no picture")
    if decoded.report.frames != media.video.frames:
        reason = f"{decoded.report.frames} of its {media.video.frames} frames decode"
        raise OutputWrong(source=context.source, reason=reason)
    width, height = media.video.displayed
    audio_codec = media.audio.codec if media.audio else None
    verified = Verification(media.duration or 0.0, media.video.frames, width, height, media.video.codec, audio_codec)
    return verified, find_differences(plan, media)


def find_differences(plan: TranscodePlan, output: Media) -> list[str]:
    """Describe the differences of the output from the plan; an empty list proves that it is right.

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
    """Raise PartlyReadable when a fault of the source explains the differences, else OutputWrong if there are any."""
    faults = source_faults(encoded, measured)
    if encoded.error_count > settings.max_errors:
        raise PartlyReadable(source=source, reason="; ".join([*faults, *found]))
    if found and faults:
        raise PartlyReadable(source=source, reason="; ".join([*found, *faults]))
    if found:
        raise OutputWrong(source=source, reason="; ".join(found))


@contextlib.contextmanager
def attributing_to_source(source: str, encoded: FfmpegResult, measured: Survey) -> Iterator[None]:
    """Turn OutputWrong into MediaDamaged when a fault of the source explains it."""
    try:
        yield
    except OutputWrong as error:
        faults = source_faults(encoded, measured)
        if faults:
            reason = "; ".join([*faults, f"of its output, {error.data['reason']}"])
            raise MediaDamaged(source=source, reason=reason) from error
        raise


def source_faults(encoded: FfmpegResult, measured: Survey) -> list[str]:
    """Describe the faults of a source that may explain a wrong output."""
    faults = []
    if encoded.error_count:
        faults.append(f"{encoded.error_count} errors while it was decoded ({encoded.errors[0]})")
    if measured.jumps:
        faults.append(f"its times run backwards or leap ahead, {measured.jumps} times")
    return faults


async def verify_poster(context: ProgramContext, file: FileDescriptor, plan: PosterPlan) -> None:
    """Decode the picture and compare its size with the plan. Raises OutputWrong."""
    media = await _probe_output(context, file, _PICTURE_FORMATS)
    if media.video is None or (media.video.width, media.video.height) != (plan.width, plan.height):
        raise OutputWrong(source=context.source, reason=f"the picture is not {plan.width}x{plan.height}")
    await _decode(context, file, _PICTURE_FORMATS, 0.0)


async def _probe_output(context: ProgramContext, file: FileDescriptor, formats: tuple[str, ...]) -> Media:
    try:
        return await probe(context, file, formats)
    except MediaUnreadable as error:
        raise OutputWrong(source=context.source, reason=f"it cannot be opened ({error.data['reason']})") from error


async def _decode(
    context: ProgramContext,
    file: FileDescriptor,
    formats: tuple[str, ...],
    total: float,
    on_progress: OnProgress | None = None,
) -> FfmpegResult:
    # With the time base of an average rate, frames that are close to each other would collide.
    arguments = ("-map", "0", "-fps_mode", "passthrough", "-enc_time_base:v", TIME_BASE)
    job = FfmpegJob("checking the output of", file, arguments, None, total, before_input=("-xerror",), formats=formats)
    try:
        finished = await run_ffmpeg(context, job, on_progress)
    except (MediaDamaged, EncoderFailed) as error:
        raise OutputWrong(source=context.source, reason=f"it does not decode ({error.data['reason']})") from error
    if finished.error_count:
        raise OutputWrong(source=context.source, reason=f"it decodes with errors ({finished.errors[0]})")
    return finished
