"""Posters: which picture of a video is taken, and taking it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from peerd.workers.video.colours import TO_JPEG, scale_filters
from peerd.workers.video.errors import MediaDamaged, MediaUnreadable, PlanFailed, RequestRefused
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.formats import CLAIMED_LENGTH, INDEXED
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.plan import TranscodeRequest, check_request, field_filters, fit_expression, fit_size
from peerd.workers.video.programs.ffmpeg import FfmpegJob, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe import read_packets
from peerd.workers.video.timeline import PacketReader

_MAX_CANDIDATES = 50
_CANDIDATES_BYTES = 192 * 2**20  # ffmpeg holds each candidate, with three bytes per pixel
_SEEK_MARGIN = 30.0  # seconds; without an index, seeking may land behind the key frame
_TIME_TOLERANCE = 0.002  # seconds
_TIMES = ("metadata=mode=add:key=shown:value=1", "metadata=mode=print:file=-")
"""Filters that print the time of each frame."""
_SHORT_WHILE = 1.0  # seconds for which a frame is surely shown, though the picture might end with it
_FRAME_TIME = re.compile(rb"pts_time:(-?[\d.]+)")


class PosterPlan(msgspec.Struct, frozen=True):
    """A picture of a video: the second that is asked for, None for a typical one, and where reading begins.

    ``frame`` is when the frame begins that is shown at that second.
    """

    height: int
    video: VideoStream
    at: float | None
    begin: float
    frame: float = 0.0


def check_poster(height: int, at: float | None) -> None:
    """Check the arguments that do not depend on the video. Raises RequestRefused."""
    check_request(TranscodeRequest(height=height))
    if at is not None and not (math.isfinite(at) and at >= 0):
        raise RequestRefused(argument="at", value=at, reason="it is out of range", expected="seconds from 0 up")


def plan_poster(media: Media, height: int, at: float | None) -> PosterPlan:
    """Choose where reading begins: at ``at`` seconds, or at a tenth of the picture's length.

    Raises RequestRefused.
    """
    assert media.video is not None
    length = media.length
    if at is not None and length is not None and at >= length and media.is_one_of(CLAIMED_LENGTH):
        raise past_the_end(at, length)
    if at is None:
        begin = length / 10 if length is not None and length > 1 else 0.0  # else the only picture may be the first
    else:
        begin = at if media.is_one_of(INDEXED) else max(0.0, at - _SEEK_MARGIN)
    return PosterPlan(height, media.video, at, begin)


def past_the_end(at: float, end: float) -> RequestRefused:
    """Return the error for a picture of a time at which there is none."""
    expected = f"a time from 0 to below {end:.2f} s"
    return RequestRefused(argument="at", value=at, reason=f"the picture ends at {end:.2f} s", expected=expected)


def poster_arguments(plan: PosterPlan) -> list[str]:
    """Return the arguments of ffmpeg between the input and the output. The time of each frame is printed."""
    size = fit_expression(plan.video, f"min(1,{plan.height}/min({{w}},{{h}}))")
    width, fitted = fit_size(plan.video.displayed, plan.height)
    # ffmpeg's filter needs two candidates at least.
    candidates = max(2, min(_MAX_CANDIDATES, _CANDIDATES_BYTES // (width * fitted * 3)))
    # The choice makes the frame the first one: its own time may lie before the second at which reading begins.
    chosen = (rf"select=gte(t\,{plan.frame - plan.begin - _TIME_TOLERANCE:.6f})", *_TIMES, "setpts=0")
    filters = [
        *field_filters(plan.video),
        *(chosen if plan.at is not None else ()),
        # Scaled before the choice: the candidates are held in memory.
        *scale_filters(plan.video, size),
        *([f"thumbnail=n={candidates}", *_TIMES] if plan.at is None else []),
        *TO_JPEG,
    ]
    return [
        *("-map", f"0:{plan.video.index}", "-an", "-sn", "-dn", "-map_metadata", "-1"),
        *("-vf", ",".join(filters), "-frames:v", "1", "-noautoscale"),
        *("-c:v", "mjpeg", "-q:v", "3", "-threads", "1", "-f", "mjpeg"),
    ]


async def take_picture(
    context: ProgramContext, file: FileDescriptor, output_file: FileDescriptor, media: Media, plan: PosterPlan
) -> float:
    """Write one picture, and return the second at which it is shown first.

    Raises RequestRefused past the picture's end, MediaUnreadable when there is no picture at all.
    """
    if plan.at is not None:
        plan = await _find_frame(context, file, media, plan, plan.at)
    times = await _run(context, file, plan, poster_arguments(plan), output_file)
    if plan.begin and not output_file.status.st_size:
        plan = msgspec.structs.replace(plan, begin=0.0)
        times = await _run(context, file, plan, poster_arguments(plan), output_file)
    if not output_file.status.st_size or not times:
        raise MediaUnreadable(source=context.source, reason="not one frame of its picture can be decoded")
    return max(0.0, times[0])


async def _find_frame(
    context: ProgramContext, file: FileDescriptor, media: Media, plan: PosterPlan, at: float
) -> PosterPlan:
    """Find the frame that is shown at a second: the last one that began before, or else the first of all.

    Where seeking landed too late, the file is read from its start.
    """
    times: list[float] = []
    for begin in dict.fromkeys((plan.begin, 0.0)):
        if not times:
            plan = msgspec.structs.replace(plan, begin=begin)
            filters = ",".join((f"trim=end={at - begin + _TIME_TOLERANCE:.6f}", *_TIMES))
            arguments = ("-map", f"0:{plan.video.index}", "-vf", filters, "-fps_mode", "passthrough")
            times = await _run(context, file, plan, arguments, None)
    if times and at - times[-1] > _SHORT_WHILE:
        end = (await read_packets(context, file, PacketReader(media))).timeline(media).video.end
        if at >= end:
            raise past_the_end(at, end)
    return msgspec.structs.replace(plan, frame=times[-1] if times else 0.0)


async def _run(
    context: ProgramContext,
    file: FileDescriptor,
    plan: PosterPlan,
    arguments: Sequence[str],
    out: FileDescriptor | None,
) -> list[float]:
    """Run ffmpeg, and return when each of the frames that it considered is shown."""
    exact = ("-noaccurate_seek",) if plan.at is not None else ()
    before = (*exact, "-ss", f"{plan.begin:.3f}") if plan.begin else ()
    lines = list[bytes]()
    job = FfmpegJob("taking a picture of", file, arguments, out, 0.0, before, watch=lines.append)
    try:
        await run_ffmpeg(context, job)
    except (MediaDamaged, PlanFailed):
        if not plan.begin:
            raise
    return [plan.begin + float(found[1]) for line in lines if (found := _FRAME_TIME.search(line)) is not None]
