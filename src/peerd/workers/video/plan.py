"""The plan of a transcode, and the arguments of ffmpeg for it. No file, no process, no clock."""

from __future__ import annotations

import msgspec

from peerd.workers.video.colours import encoder_arguments, scale_filters
from peerd.workers.video.errors import RequestRefused
from peerd.workers.video.formats import WHOLE_FRAMES
from peerd.workers.video.media import AudioStream, Media, VideoStream
from peerd.workers.video.timeline import UNEVEN, Timeline

# x264's preset and constant rate factor. CRF 23 is x264's own default; each 6 halve or double the size.
_QUALITIES: dict[str, tuple[str, int]] = {
    "draft": ("ultrafast", 26),
    "standard": ("veryfast", 23),
    "high": ("slow", 20),
}
# Peak video bit rate (kbit/s) up to a height: twice Shaka Streamer's H.264 defaults, whose averages CRF then
# decides; twice is also the most that Apple's authoring rules allow a peak to be.
_PEAKS = ((240, 500), (360, 800), (480, 2000), (720, 6000), (1080, 10000), (2160, 34000))
_KEY_FRAME_SECONDS = 2  # Apple's authoring rules; also how finely players seek
_AUDIO_RATE = 48000
TIME_BASE = "1/90000"
_LONGEST_SIDE = 16384  # pixels; of libx264
_FEWER = 0.99  # and 3 frames; a source that is faster by less keeps all its frames
_LONG_PAUSE = 0.5  # seconds
_TIME_TOLERANCE = 0.002  # seconds
_LEAST_FOR_FIELDS = 8  # pixels of each side, for the deinterlacer
_AMBISONIC = "pan=stereo|c0=0.5*c0+0.5*c1|c1=0.5*c0-0.5*c1"


class TranscodeRequest(msgspec.Struct, frozen=True):
    """Arguments of a transcode: bounds of the shorter side in pixels and of the frames per second; quality; sound."""

    height: int = 720
    max_fps: int = 60
    quality: str = "standard"
    audio: bool = True


class ExpectedOutput(msgspec.Struct, frozen=True):
    """Expected properties of the output: seconds of picture and sound (None: no sound), and frames.

    ``begin`` is when the picture begins, in seconds; ``uncertain`` the number of frames at the start, and
    ``frame_tolerance`` the share of all, that need not be there.
    """

    duration: float
    begin: float
    video: float
    audio: float | None
    frames: int
    uncertain: int
    frame_tolerance: float


class TranscodePlan(msgspec.Struct, frozen=True):
    """All parameters of the encoder, and the expected output.

    ``begin`` is when the picture begins, in seconds. ``hold`` is how many seconds the last frame is shown, where frames
    have long pauses; None elsewhere. ``late``: the first frames are left out. ``steady``: times that leap are no new
    beginning.
    """

    width: int
    height: int
    video: VideoStream
    audio: tuple[AudioStream, ...]
    rate_cap: int | None
    preset: str
    crf: int
    peak: int
    begin: float
    hold: float | None
    late: bool
    steady: bool
    expected: ExpectedOutput


def plan_transcode(media: Media, timeline: Timeline, request: TranscodeRequest) -> TranscodePlan:
    """Decide how a file with a picture becomes an MP4 of H.264 and AAC."""
    assert media.video is not None
    video, span = media.video, timeline.video
    audio = media.audio if request.audio and timeline.audio_end is not None else ()
    width, height = fit_size(video.displayed, request.height)
    rate_cap = request.max_fps if span.kept < span.frames * _FEWER - 3 else None
    preset, crf = _QUALITIES[request.quality]
    hold = span.end - (span.last if rate_cap is None else span.begin + span.kept_after)
    begin = max(0.0, min(span.begin, span.end))
    return TranscodePlan(
        width=width,
        height=height,
        video=video,
        audio=audio,
        rate_cap=rate_cap,
        preset=preset,
        crf=crf,
        peak=next((peak for highest, peak in _PEAKS if min(width, height) <= highest), 60000),
        begin=begin,
        hold=hold if max(span.gap, hold, 1 / request.max_fps) > _LONG_PAUSE else None,
        late=timeline.lost > 0,
        steady=timeline.steady,
        expected=_expected_output(video, audio, timeline, rate_cap, begin if audio else 0.0),
    )


def fit_size(displayed: tuple[int, int], shorter: int) -> tuple[int, int]:
    """Return the output's size: the shape kept, even, its shorter side at most ``shorter``, and never enlarged.

    >>> fit_size((1920, 1080), 720), fit_size((641, 361), 720), fit_size((1080, 1920), 720)
    ((1280, 720), (640, 360), (720, 1280))
    """
    least = min(displayed)
    bound = min(least, shorter, least * _LONGEST_SIDE // max(displayed))
    width, height = (_even(side * bound / least, most=bound if side == least else side) for side in displayed)
    return width, height


def fit_expression(video: VideoStream, fit: str) -> str:
    """Return the size of each frame for ffmpeg's filter; ``fit`` is a factor, an expression of 'w' and 'h'."""
    # The shape of a sample has been turned with the picture.
    width, height = ("iw", "(ih/sar)") if video.quarter_turned else ("(iw*sar)", "ih")
    factor = fit.format(w=width, h=height).replace(",", r"\,")
    return rf"max(2\,2*round({width}*{factor}/2-0.001)):max(2\,2*round({height}*{factor}/2-0.001))"


def _even(wanted: float, *, most: int) -> int:
    """The nearest even number, at most ``most``; 2 is the least that 4:2:0 can carry."""
    return max(2, min(2 * round(wanted / 2), most - most % 2))


def check_request(request: TranscodeRequest) -> None:
    """Raises RequestRefused for what is out of range or not known."""
    for argument, value, right, reason, expected in (
        ("height", request.height, 16 <= request.height <= 4320, "out of range", "16 to 4320 pixels"),
        ("max_fps", request.max_fps, 1 <= request.max_fps <= 240, "out of range", "1 to 240 frames per second"),
        ("quality", request.quality, request.quality in _QUALITIES, "not known", " or ".join(_QUALITIES)),
    ):
        if not right:
            raise RequestRefused(argument=argument, value=value, reason=f"it is {reason}", expected=expected)


def _expected_output(
    video: VideoStream, audio: tuple[AudioStream, ...], timeline: Timeline, rate_cap: int | None, begin: float
) -> ExpectedOutput:
    span = timeline.video
    audio_end = timeline.audio_end if audio else None
    return ExpectedOutput(
        duration=max(span.end, audio_end) if audio_end is not None else span.length,
        begin=begin,
        video=span.length,
        audio=audio_end,
        frames=span.kept if rate_cap is not None else span.frames // 2 if video.fields else span.frames,
        uncertain=span.undecodable,
        frame_tolerance=_frame_tolerance(video),
    )


def _frame_tolerance(video: VideoStream) -> float:
    """The share of packets that need not become frames.

    In most codecs each does (1 % for a broken edge). VP8 has invisible reference frames in packets of their own; MPEG-4
    and its relatives in AVI write 'not coded' ones; interlaced pictures may come field by field.
    """
    if video.interlaced and not video.fields:
        return 0.55
    return 0.01 if video.codec in WHOLE_FRAMES else 0.2


def transcode_arguments(plan: TranscodePlan, threads: int) -> list[str]:
    """Return the arguments of ffmpeg between the input and the output."""
    return [
        *("-map", f"0:{plan.video.index}"),
        *("-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1"),
        *("-vf", ",".join(_picture_filters(plan))),
        # Frames keep their own times (a phone's rate varies); without the fine time base they would be
        # rounded to the guessed rate, and those that fall together dropped.
        *("-fps_mode", "vfr", "-enc_time_base:v", TIME_BASE),
        *("-c:v", "libx264", "-preset", plan.preset, "-crf", str(plan.crf)),
        # x264's model of a buffer starves the frames beside a long pause.
        *(("-maxrate", f"{plan.peak}k", "-bufsize", f"{plan.peak * 2}k") if plan.hold is None else ()),
        *("-force_key_frames", f"expr:gte(t,n_forced*{_KEY_FRAME_SECONDS})"),
        *encoder_arguments(plan.video),
        *("-threads", str(threads)),
        *_pause_arguments(plan),
        *(("-dts_delta_threshold", "1000000") if plan.steady else ()),
        *_sound_arguments(plan),
        # Wrong timestamps can make hours of silence out of seconds; an output cut here fails verification.
        *("-t", f"{plan.expected.duration * 1.05 + 5:.3f}"),
        *("-movflags", "+faststart", "-f", "mp4"),
    ]


def _pause_arguments(plan: TranscodePlan) -> list[str]:
    """Where frames have long pauses: an MP4's length is counted in the order of decoding, so it loses the last pause
    if frames are shown in another order; and how long the last frame is shown has to be told.
    """
    if plan.hold is None:
        return []
    last = rf"setts=duration=if(eq(NEXT_PTS\,NOPTS)\,{plan.hold:.6f}/TB\,DURATION)"
    return ["-bf", "0", "-bsf:v", last]


def _sound_arguments(plan: TranscodePlan) -> list[str]:
    audio = plan.audio
    if not audio:
        return ["-an"]
    # Gaps are filled with silence, so that sound stays with the picture.
    steady = "aresample=async=1:first_pts=0"
    whole = f"apad=whole_dur={plan.expected.audio:.6f}"
    options = ["-c:a", "aac", "-ar", str(_AUDIO_RATE)]
    if len(audio) == 2:
        left, right = (f"[0:{each.index}]{steady},{whole}[{side}]" for each, side in zip(audio, "lr", strict=True))
        graph = f"{left};{right};[l][r]join=inputs=2:channel_layout=stereo[sound]"
        return ["-filter_complex", graph, "-map", "[sound]", *options, "-b:a", "128k"]
    channels = 1 if audio[0].channels == 1 else 2
    # Ambisonics have no loudspeakers: the first channel is the sum of all directions, the second left minus right.
    ambisonic = audio[0].layout.startswith("ambisonic")
    filters = f"{_AMBISONIC},{steady}" if ambisonic else steady
    return ["-map", f"0:{audio[0].index}", "-af", filters, *options, "-ac", str(channels), "-b:a", f"{64 * channels}k"]


def _picture_filters(plan: TranscodePlan) -> list[str]:
    size = f"{plan.width}:{plan.height}"
    if plan.video.changes:
        size = fit_expression(plan.video, f"min({plan.width}/{{w}},{plan.height}/{{h}})")
    scaled = scale_filters(plan.video, size)
    padded = [f"pad={plan.width}:{plan.height}:-1:-1"] if plan.video.changes else []
    return [
        # Frames at a start in the middle, which some decoders make up.
        *([f"trim=start={plan.begin - _TIME_TOLERANCE:.6f}"] if plan.late else []),
        *([f"setpts=PTS-{plan.begin:.6f}/TB"] if not plan.audio and plan.begin else []),
        *field_filters(plan.video),
        *([_dropping(plan.rate_cap, plan.begin)] if plan.rate_cap is not None else []),
        *scaled,
        *padded,
    ]


def _dropping(rate: int, begin: float) -> str:
    """Drop frames of a faster source, so that the others keep their times, and pauses are not filled: the timeline
    counts the same ones.
    """
    new, old = (f"floor(({time}-{begin:.6f})*{rate}+{UNEVEN})" for time in ("t", "prev_selected_t"))
    return rf"select=isnan(prev_selected_t)+gt({new}\,{old})"


def field_filters(video: VideoStream) -> list[str]:
    """Make whole frames of fields: where frames say that they have some, wherever that begins; or where all have."""
    if video.fields:
        return ["weave=first_field=top", "bwdif=mode=send_frame:parity=tff:deint=all"]
    if video.combed:
        return [f"bwdif=mode=send_frame:parity={video.combed}:deint=all"]
    planar = video.pixel_format.startswith("yuv") and min(video.width, video.height) >= _LEAST_FOR_FIELDS
    # The filter holds one frame back, which is lost when the shape changes.
    return ["bwdif=mode=send_frame:deint=interlaced"] if (planar and not video.changes) or video.interlaced else []
