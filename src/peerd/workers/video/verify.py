"""Verification: the source is compared with its own claims before the work, the output with the source after it.

ffmpeg's status 0 proves nothing: half a Matroska file gives status 0 and half the length.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from peerd.workers.video.errors import (
    EncoderFailed,
    MediaDamaged,
    MediaUnreadable,
    OutputWrong,
    PartlyReadable,
    PlanFailed,
)
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.formats import CLAIMED_LENGTH
from peerd.workers.video.media import Media
from peerd.workers.video.plan import TIME_BASE, TranscodePlan
from peerd.workers.video.programs.ffmpeg import FfmpegJob, FfmpegResult, OnProgress, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe import probe, read_packets
from peerd.workers.video.settings import VideoSettings
from peerd.workers.video.streams import choose_streams
from peerd.workers.video.timeline import PacketReader, Timeline

_OUTPUT_FORMATS = ("mov", "mp4")
_PICTURE_FORMATS = ("jpeg_pipe", "mjpeg", "image2")
_SECONDS_TOLERANCE = 0.5
_SHARE_TOLERANCE = 0.002
_CLAIM_TOLERANCE = 0.01  # a container's own duration is often an estimate; what was counted is not
_MAX_SECONDS_TOLERANCE = 5.0  # a share of a long film is minutes, and no estimate is that bad
_FRAMES_TOLERANCE = 3
_HOLE = 1.0  # seconds; without an error a pause of the source, with one what is missing
_CUT_OFF = "partial file"  # what ffmpeg says of a packet that ends after the file


def find_damage(media: Media, timeline: Timeline) -> str | None:
    """Describe by how much the source is shorter than it claims; None when it is not."""
    # The header of a slow film may count frames that wait for others.
    tolerated = _tolerated(media.length or 0.0, _CLAIM_TOLERANCE, slack=2 * timeline.video.gap)
    if media.length is None or (_shortfall(media, timeline) or 0.0) <= tolerated:
        return None
    share = min(round(100 * timeline.readable / media.length), 99)
    return f"it claims {media.length:.2f} s, but only {timeline.readable:.2f} s ({share} %) can be read"


def missing_seconds(media: Media, timeline: Timeline) -> float | None:
    """Return the seconds that are missing of the source: at its start, which cannot be decoded, and at its end.

    None when nothing is missing at the start, and the header claims no length.
    """
    short = _shortfall(media, timeline)
    return timeline.lost + (short or 0.0) if timeline.lost or short is not None else None


def _shortfall(media: Media, timeline: Timeline) -> float | None:
    if media.length is None or not media.is_one_of(CLAIMED_LENGTH):
        return None
    return max(0.0, media.length - timeline.readable)


def _tolerated(duration: float, share: float, slack: float = 0.0) -> float:
    return min(_SECONDS_TOLERANCE + duration * share + slack, _MAX_SECONDS_TOLERANCE)


async def verify_transcode(
    context: ProgramContext, file: FileDescriptor, plan: TranscodePlan, on_progress: OnProgress | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Read the output's timeline, and decode all of it; return its properties, and its differences from the plan.

    Raises OutputWrong when it cannot be decoded from end to end.
    """
    media = choose_streams(await _probe_output(context, file, _OUTPUT_FORMATS), context.codecs)
    decoded = await _decode(context, file, _OUTPUT_FORMATS, media.duration or 0.0, on_progress)
    if media.video is None:
        raise OutputWrong(source=context.source, reason="it has no picture")
    timeline = (await read_packets(context, file, PacketReader(media), _OUTPUT_FORMATS)).timeline(media)
    if decoded.report.frames != timeline.video.frames:
        reason = f"{decoded.report.frames} of its {timeline.video.frames} frames decode"
        raise OutputWrong(source=context.source, reason=reason)
    width, height = media.video.displayed
    verified = {
        "duration": round(timeline.readable, 3),
        "frames": timeline.video.frames,
        "width": width,
        "height": height,
        "video_codec": media.video.codec,
        "audio_codec": media.audio[0].codec if media.audio else None,
    }
    return verified, find_differences(plan, media, timeline)


def find_differences(plan: TranscodePlan, output: Media, timeline: Timeline) -> list[str]:
    """Describe the differences of the output from the plan; an empty list proves that it is right.

    The tolerances: half a second and 0.2 % of the time, 5 s at most (edges, and the encoder's padding of sound), 3
    frames (fewer of less than 60), and those that the source's codec and its start make uncertain.
    """
    video, expected, found = output.video, plan.expected, timeline.video
    if video is None:
        return ["it has no picture"]
    told = []
    if video.displayed != (plan.width, plan.height) or (video.width, video.height) != (plan.width, plan.height):
        told.append(f"it is {video.width}x{video.height} instead of {plan.width}x{plan.height}")
    if (video.codec, video.pixel_format) != ("h264", "yuv420p"):
        told.append(f"its picture is {video.codec} {video.pixel_format}")
    told += _difference("picture", found.length, expected.video)
    told += _difference("pause before the picture", found.begin + output.start, expected.begin)
    if expected.audio is None and timeline.audio_end is not None:
        told.append("it has sound, which was not asked for")
    elif expected.audio is not None:
        told += _difference("sound", timeline.audio_end, expected.audio)
        told += _difference("whole", timeline.readable, expected.duration)
    edges = min(_FRAMES_TOLERANCE, 1 + expected.frames // 20)
    fewest = (expected.frames - expected.uncertain) * (1 - expected.frame_tolerance) - edges
    most = expected.frames * 1.01 + edges
    if not fewest <= found.frames <= most:
        told.append(f"it has {found.frames} frames, the source {expected.frames}")
    return told


def _difference(what: str, found: float | None, wanted: float) -> list[str]:
    if found is None:
        return [f"it has no {what}"]
    if abs(found - wanted) <= _tolerated(wanted, _SHARE_TOLERANCE):
        return []
    return [f"its {what} lasts {found:.2f} s, the source's {wanted:.2f} s"]


def require_match(
    source: str, encoded: FfmpegResult, found: list[str], timeline: Timeline, settings: VideoSettings
) -> None:
    """Raise PartlyReadable when a fault of the source explains the differences, else PlanFailed if there are any."""
    faults = source_faults(encoded, timeline)
    cut_off = any(_CUT_OFF in line for line in encoded.errors)
    hole = encoded.error_count > 0 and timeline.video.gap > _HOLE
    if encoded.error_count > settings.max_errors or cut_off or hole or (found and faults):
        raise PartlyReadable(source=source, reason="; ".join([*found, *faults]))
    if found:
        raise PlanFailed(source=source, reason=f"of the output, {'; '.join(found)}")


@contextlib.contextmanager
def attributing_to_source(source: str, encoded: FfmpegResult, timeline: Timeline) -> Iterator[None]:
    """Turn OutputWrong into MediaDamaged when a fault of the source explains it."""
    try:
        yield
    except OutputWrong as error:
        faults = source_faults(encoded, timeline)
        if faults:
            reason = "; ".join([*faults, f"of its output, {error.data['reason']}"])
            raise MediaDamaged(source=source, reason=reason) from error
        raise


def source_faults(encoded: FfmpegResult, timeline: Timeline) -> list[str]:
    """Describe the faults of a source that may explain a wrong output."""
    faults = []
    if encoded.error_count:
        faults.append(f"{encoded.error_count} errors while it was decoded ({' / '.join(encoded.errors[:1])})")
        if timeline.video.gap > _HOLE:
            faults.append(f"{timeline.video.gap:.1f} s without a picture")
    if timeline.jumps:
        faults.append(f"its times run backwards, {timeline.jumps} times")
    return faults


async def verify_poster(context: ProgramContext, file: FileDescriptor, height: int) -> tuple[int, int]:
    """Decode a picture and return its width and height. Raises OutputWrong."""
    video = choose_streams(await _probe_output(context, file, _PICTURE_FORMATS), context.codecs).video
    if video is None or min(video.width, video.height) > max(2, height):
        raise OutputWrong(source=context.source, reason=f"the picture is not within {height} pixels")
    await _decode(context, file, _PICTURE_FORMATS, 0.0)
    return video.width, video.height


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
    # Without the loop filter the same bits are read, and the same errors found, in less time; so with one thread.
    checking = ("-xerror", "-skip_loop_filter", "all", "-threads", "1")
    job = FfmpegJob("checking the output of", file, arguments, None, total, before_input=checking, formats=formats)
    try:
        finished = await run_ffmpeg(context, job, on_progress)
    except (MediaDamaged, EncoderFailed, PlanFailed) as error:
        raise OutputWrong(source=context.source, reason=f"it does not decode ({error.data['reason']})") from error
    if finished.error_count:
        raise OutputWrong(source=context.source, reason=f"it decodes with errors ({finished.errors[0]})")
    return finished
