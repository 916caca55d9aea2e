"""Plans of a transcode and of a poster, and the arguments of ffmpeg for them. No file, no process, no clock."""

from __future__ import annotations

import math

import msgspec

from peerd.workers.video.errors import RequestRefused
from peerd.workers.video.media import AudioStream, Media, Survey, VideoStream

# x264's preset and constant rate factor. CRF 23 is x264's own default; each 6 halve or double the size.
_QUALITIES: dict[str, tuple[str, int]] = {
    "draft": ("ultrafast", 26),
    "standard": ("veryfast", 23),
    "high": ("slow", 20),
}
# Peak video bit rate (kbit/s) up to a height: twice Shaka Streamer's H.264 defaults, whose averages CRF then
# decides; twice is also the most that Apple's authoring rules allow a peak to be.
_PEAKS = ((240, 500), (360, 800), (480, 2000), (720, 6000), (1080, 10000), (2160, 34000))
_MAX_CANDIDATES = 50
_CANDIDATES_BYTES = 192 * 2**20  # ffmpeg holds each candidate, with three bytes per pixel
_KEY_FRAME_SECONDS = 2  # Apple's authoring rules; also how finely players seek
_AUDIO_RATE = 48000
TIME_BASE = "1/90000"
TONE_MAP = (
    "zscale=transfer=linear:npl=100,format=gbrpf32le,zscale=primaries=bt709,tonemap=hable:desat=0,"
    "zscale=transfer=bt709:matrix=bt709:range=limited"
)


class TranscodeRequest(msgspec.Struct, frozen=True):
    """Arguments of a transcode: bounds of the height in pixels and of the frames per second, quality, and sound."""

    height: int = 720
    max_fps: int = 60
    quality: str = "standard"
    audio: bool = True


class ExpectedOutput(msgspec.Struct, frozen=True):
    """Expected properties of the output: seconds of picture and sound (None: no sound), and frames."""

    duration: float
    video: float
    audio: float | None
    frames: int
    frame_tolerance: float


class TranscodePlan(msgspec.Struct, frozen=True):
    """All parameters of the encoder, and the expected output."""

    width: int
    height: int
    video: VideoStream
    audio: AudioStream | None
    rate_cap: int | None
    preset: str
    crf: int
    peak: int
    expected: ExpectedOutput


def plan_transcode(media: Media, measured: Survey, request: TranscodeRequest) -> TranscodePlan:
    """Decide how a file with a picture becomes an MP4 of H.264 and AAC.

    Raises RequestRefused when an argument makes no sense.
    """
    check_request(request)
    assert media.video is not None
    video = media.video
    audio = media.audio if request.audio and measured.audio_end is not None else None
    width, height = fit_size(video.displayed, request.height)
    rate_cap = request.max_fps if _faster_than(video, measured, request.max_fps) else None
    preset, crf = _QUALITIES[request.quality]
    return TranscodePlan(
        width=width,
        height=height,
        video=video,
        audio=audio,
        rate_cap=rate_cap,
        preset=preset,
        crf=crf,
        peak=next((peak for highest, peak in _PEAKS if height <= highest), 60000),
        expected=_expected_output(video, audio, measured, rate_cap),
    )


def fit_size(displayed: tuple[int, int], highest: int) -> tuple[int, int]:
    """Return the output's size: the shape kept, even, no higher than ``highest``, and never enlarged.

    >>> fit_size((1920, 1080), 720), fit_size((641, 361), 720), fit_size((1080, 1920), 720)
    ((1280, 720), (640, 360), (404, 720))
    """
    width, height = displayed
    bound = min(height, highest)
    return _even(width * bound / height, most=width), _even(bound, most=bound)


def _even(wanted: float, *, most: int) -> int:
    """The nearest even number, at most ``most``; 2 is the least that 4:2:0 can carry."""
    return max(2, min(2 * round(wanted / 2), most - most % 2))


def check_request(request: TranscodeRequest) -> None:
    """Raises RequestRefused for what is out of range or not known."""
    height, rate, quality, range_reason = request.height, request.max_fps, request.quality, "it is out of range"
    if not 16 <= height <= 4320:
        raise RequestRefused(argument="height", value=height, reason=range_reason, expected="16 to 4320 pixels")
    if not 1 <= rate <= 240:
        raise RequestRefused(argument="max_fps", value=rate, reason=range_reason, expected="1 to 240 frames per second")
    if quality not in _QUALITIES:
        expected = " or ".join(_QUALITIES)
        raise RequestRefused(argument="quality", value=quality, reason="it is not known", expected=expected)


def _faster_than(video: VideoStream, measured: Survey, cap: int) -> bool:
    counted = measured.frames / measured.video_length if measured.video_length > 0 else 0.0
    rate = float(video.frame_rate) if video.frame_rate is not None else counted
    # A header's rate may be a guess (90000/1); the counted one is not.
    return min(rate, counted or rate) > cap * 1.01


def _expected_output(
    video: VideoStream, audio: AudioStream | None, measured: Survey, rate_cap: int | None
) -> ExpectedOutput:
    audio_end = measured.audio_end if audio is not None else None
    frames = measured.frames if rate_cap is None else min(measured.frames, math.ceil(measured.video_length * rate_cap))
    return ExpectedOutput(
        duration=max(measured.video_end, audio_end or 0.0),
        video=measured.video_length,
        audio=audio_end,
        frames=frames,
        frame_tolerance=_frame_tolerance(video),
    )


def _frame_tolerance(video: VideoStream) -> float:
    """The share of packets that need not become frames.

    In most codecs each does (1 % for a broken edge). VP8 has invisible reference frames in packets of their own; MPEG-4
    and its relatives in AVI write 'not coded' ones; interlaced pictures may come field by field.
    """
    if video.interlaced:
        return 0.55
    return 0.01 if video.codec in {"h264", "hevc", "av1", "vp9", "mpeg2video", "theora", "prores", "mjpeg"} else 0.2


def transcode_arguments(plan: TranscodePlan, threads: int) -> list[str]:
    """Return the arguments of ffmpeg between the input and the output."""
    audio: tuple[str, ...] = ()
    if plan.audio is not None:
        channels = 1 if plan.audio.channels == 1 else 2
        # Gaps are filled with silence, so that sound stays with the picture.
        audio = ("-af", "aresample=async=1:first_pts=0", "-c:a", "aac", "-ac", str(channels))
        audio += ("-ar", str(_AUDIO_RATE), "-b:a", f"{64 * channels}k")
    return [
        *("-map", f"0:{plan.video.index}"),
        *(("-map", f"0:{plan.audio.index}") if plan.audio else ("-an",)),
        *("-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1"),
        *("-vf", ",".join(_picture_filters(plan))),
        # Frames keep their own times (a phone's rate varies); without the fine time base they would be
        # rounded to the guessed rate, and those that fall together dropped.
        *("-fps_mode", "vfr", "-enc_time_base:v", TIME_BASE),
        *("-c:v", "libx264", "-preset", plan.preset, "-crf", str(plan.crf)),
        *("-maxrate", f"{plan.peak}k", "-bufsize", f"{plan.peak * 2}k"),
        *("-force_key_frames", f"expr:gte(t,n_forced*{_KEY_FRAME_SECONDS})"),
        *("-threads", str(threads)),
        *audio,
        # Wrong timestamps can make hours of silence out of seconds; an output cut here fails verification.
        *("-t", f"{plan.expected.duration * 1.05 + 5:.3f}"),
        *("-movflags", "+faststart", "-f", "mp4"),
    ]


def _picture_filters(plan: TranscodePlan) -> list[str]:
    return [
        *(["bwdif=mode=send_frame:deint=interlaced"] if plan.video.interlaced else []),
        *([f"fps={plan.rate_cap}"] if plan.rate_cap is not None else []),
        # Some phones record the full range of values, which few players expect in H.264.
        f"scale={plan.width}:{plan.height}:out_range=tv",
        *([TONE_MAP] if plan.video.is_hdr else []),
        "setsar=1",
        "format=yuv420p",
    ]


class PosterPlan(msgspec.Struct, frozen=True):
    """One picture of a video: its size, and the second it is taken from."""

    width: int
    height: int
    video: VideoStream
    at: float
    choose: bool


def check_poster(height: int, at: float | None) -> None:
    """Check the arguments that do not depend on the video. Raises RequestRefused."""
    check_request(TranscodeRequest(height=height))
    if at is not None and not (math.isfinite(at) and at >= 0):
        raise RequestRefused(argument="at", value=at, reason="it is out of range", expected="seconds from 0 up")


def plan_poster(media: Media, height: int, at: float | None) -> PosterPlan:
    """Choose the picture: at ``at`` seconds, or else the most typical one from a tenth of the way in.

    Raises RequestRefused.
    """
    check_poster(height, at)
    assert media.video is not None
    length = media.duration
    if at is not None and length is not None and at >= length:
        end = f"a time from 0 to below {length:.2f} s"
        raise RequestRefused(argument="at", value=at, reason="the video is not that long", expected=end)
    width, fitted = fit_size(media.video.displayed, height)
    # In a very short video the only picture may be the first.
    start = at if at is not None else (length or 0.0) / 10 if (length or 0.0) > 1 else 0.0
    return PosterPlan(width, fitted, media.video, start, at is None)


def poster_arguments(plan: PosterPlan) -> list[str]:
    """Return the arguments of ffmpeg between the input and the output."""
    # ffmpeg's filter needs two candidates at least.
    candidates = max(2, min(_MAX_CANDIDATES, _CANDIDATES_BYTES // (plan.width * plan.height * 3)))
    filters = [
        # Scaled before the choice: the candidates are held in memory.
        f"scale={plan.width}:{plan.height}",
        *([f"thumbnail=n={candidates}"] if plan.choose else []),
        *([TONE_MAP] if plan.video.is_hdr else []),
        *("setsar=1", "format=yuvj420p"),
    ]
    return [
        *("-map", f"0:{plan.video.index}", "-an", "-sn", "-dn", "-map_metadata", "-1"),
        *("-vf", ",".join(filters), "-frames:v", "1"),
        *("-c:v", "mjpeg", "-q:v", "3", "-threads", "1", "-f", "mjpeg"),
    ]
