"""Which picture of a video, and how large: values in, values out."""

from __future__ import annotations

import math

import msgspec

from peerd.workers.video.errors import RequestRefused
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.plan import TONE_MAP, TranscodeRequest, check_request, fit_size

_MOST_CANDIDATES = 50
_CANDIDATES_BYTES = 192 * 2**20  # ffmpeg holds each candidate, with three bytes per pixel


class PosterPlan(msgspec.Struct, frozen=True):
    """One picture of a video: its size, and the second it is taken from."""

    width: int
    height: int
    video: VideoStream
    at: float
    choose: bool
    tone_map: bool


def check_poster(height: int, at: float | None) -> None:
    """Refuse what no video can satisfy. Raises RequestRefused."""
    check_request(TranscodeRequest(height=height))
    if at is not None and not (math.isfinite(at) and at >= 0):
        raise RequestRefused(argument="at", value=at, reason="it is out of range", expected="seconds from 0 up")


def plan_poster(media: Media, height: int, at: float | None) -> PosterPlan:
    """Decide on the picture: ``at`` seconds, or else the most typical one from a tenth of the way in.

    Raises RequestRefused.
    """
    check_poster(height, at)
    assert media.video is not None
    length = media.duration
    if at is not None and length is not None and at >= length:
        end = f"a time from 0 to below {length:.2f} s"
        raise RequestRefused(argument="at", value=at, reason="the video is not that long", expected=end)
    width, fitted = fit_size(media.video.displayed, height)
    # In what is very short the only picture may be the first.
    start = at if at is not None else (length or 0.0) / 10 if (length or 0.0) > 1 else 0.0
    return PosterPlan(width, fitted, media.video, start, at is None, media.video.is_hdr)


def poster_arguments(plan: PosterPlan) -> list[str]:
    """Say the plan in ffmpeg's words: what stands between the input and the output."""
    filters = [
        # Scaled before one is chosen: the candidates are held in memory.
        f"scale={plan.width}:{plan.height}",
        *([f"thumbnail=n={_candidate_count(plan)}"] if plan.choose else []),
        *([TONE_MAP] if plan.tone_map else []),
        *("setsar=1", "format=yuvj420p"),
    ]
    return [
        *("-map", f"0:{plan.video.index}", "-an", "-sn", "-dn", "-map_metadata", "-1"),
        *("-vf", ",".join(filters), "-frames:v", "1"),
        *("-c:v", "mjpeg", "-q:v", "3", "-threads", "1", "-f", "mjpeg"),
    ]


def _candidate_count(plan: PosterPlan) -> int:
    """Among how many pictures to choose; ffmpeg's filter wants two at least."""
    return max(2, min(_MOST_CANDIDATES, _CANDIDATES_BYTES // (plan.width * plan.height * 3)))
