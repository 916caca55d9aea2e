"""ffprobe → values. Its answer is text written by a stranger's file: bounded, decoded leniently, checked by type."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec

from peerd.workers.video.binaries import Tools
from peerd.workers.video.errors import FormatRefused, MediaTooLarge, MediaUnreadable
from peerd.workers.video.failure import explain_unreadable
from peerd.workers.video.media import (
    AUDIO_CODECS,
    FORMATS,
    FORMATS_IN_WORDS,
    VIDEO_CODECS,
    AudioStream,
    Media,
    Survey,
    VideoStream,
)
from peerd.workers.video.process import Program, limits_of
from peerd.workers.video.settings import VideoSettings

_MOST_STREAMS = 64
_LARGEST_ANSWER = 4 * 2**20  # bytes
_ENTRIES = (
    "format=format_name,duration,start_time,size:"
    "stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,avg_frame_rate,r_frame_rate,nb_frames,"
    "duration,pix_fmt,field_order,color_transfer,channels,sample_rate:"
    "stream_disposition=default,attached_pic:stream_tags=DURATION,rotate:stream_side_data=rotation"
)


class _SideData(msgspec.Struct):
    rotation: float = 0.0


class _Disposition(msgspec.Struct):
    default: int = 0
    attached_pic: int = 0


class _Tags(msgspec.Struct):
    DURATION: str = ""
    rotate: str = ""


class _Stream(msgspec.Struct):
    index: int
    codec_type: str = ""
    codec_name: str = "unknown"
    width: int = 0
    height: int = 0
    sample_aspect_ratio: str = ""
    avg_frame_rate: str = ""
    r_frame_rate: str = ""
    nb_frames: str = ""
    duration: str = ""
    pix_fmt: str = ""
    field_order: str = ""
    color_transfer: str = ""
    channels: int = 0
    sample_rate: str = ""
    disposition: _Disposition = msgspec.field(default_factory=_Disposition)
    tags: _Tags = msgspec.field(default_factory=_Tags)
    side_data_list: list[_SideData] = msgspec.field(default_factory=list)


class _Format(msgspec.Struct):
    format_name: str = ""
    duration: str = ""
    start_time: str = ""
    size: str = ""


class _Answer(msgspec.Struct):
    format: _Format = msgspec.field(default_factory=_Format)
    streams: list[_Stream] = msgspec.field(default_factory=list)


def guarded_input(path: Path, settings: VideoSettings, formats: Sequence[str] = FORMATS) -> list[str]:
    """Return the options that must stand before every input, for ffmpeg and ffprobe alike, and the input itself.

    Files only, known containers only, bounded pictures and streams; ``file:`` so that a name is never a protocol.
    """
    return [
        *("-protocol_whitelist", "file"),
        *("-format_whitelist", ",".join(formats)),
        *("-max_streams", str(_MOST_STREAMS)),
        *("-max_pixels", str(settings.max_pixels)),
        *("-i", f"file:{path}"),
    ]


async def probe(
    tools: Tools, path: Path, source: str, settings: VideoSettings, formats: Sequence[str] = FORMATS
) -> Media:
    """Ask ffprobe about a file. ``source`` is the name that errors use.

    Raises FormatRefused, MediaUnreadable, MediaTooLarge.
    """
    command = [
        *(tools.ffprobe, "-v", "error", "-hide_banner"),
        *("-show_entries", _ENTRIES, "-of", "json"),
        *guarded_input(path, settings, formats),
    ]
    async with Program(command, limits_of(settings), doing="probing", source=source, hide=_folder(path)) as program:
        answer = await program.read_all(_LARGEST_ANSWER, within=settings.probe_timeout)
        if await program.ended() != 0:
            raise explain_unreadable(source, program.errors.first)
    return read_answer(answer, source)


def read_answer(answer: bytes, source: str = "the file") -> Media:
    """Turn ffprobe's JSON into a Media: the first real picture, the default (else first) sound.

    Raises MediaUnreadable when it is not such an answer.
    """
    try:
        raw = msgspec.json.decode(answer.decode(errors="replace"), type=_Answer)
    except msgspec.DecodeError as error:
        raise MediaUnreadable(source=source, reason=f"ffprobe's answer makes no sense ({error})") from error
    pictures = [s for s in raw.streams if s.codec_type == "video" and not s.disposition.attached_pic]
    sounds = sorted((s for s in raw.streams if s.codec_type == "audio"), key=lambda s: not s.disposition.default)
    return Media(
        format=raw.format.format_name,
        size=int(_number(raw.format.size) or 0),
        duration=_positive(raw.format.duration),
        start=_number(raw.format.start_time) or 0.0,
        video=_video(pictures[0]) if pictures else None,
        audio=_audio(sounds[0]) if sounds else None,
    )


def require_acceptable(media: Media, source: str, settings: VideoSettings, *, audio: bool) -> VideoStream:
    """Return the picture of a file that is within the lists and limits. ``audio``: the sound is wanted too.

    Raises FormatRefused, MediaTooLarge.
    """
    video = media.video
    if video is None:
        raise FormatRefused(source=source, reason="it has no moving picture", expected=FORMATS_IN_WORDS)
    if video.codec not in VIDEO_CODECS:
        raise FormatRefused(
            source=source, reason=f"its video codec {video.codec} is not accepted", expected="H.264, HEVC, VP9 or AV1"
        )
    if video.width <= 0 or video.height <= 0:
        raise MediaUnreadable(source=source, reason="its picture has no size")
    if audio and media.audio is not None and media.audio.codec not in AUDIO_CODECS:
        reason = f"its audio codec {media.audio.codec} is not accepted (audio=false leaves it out)"
        raise FormatRefused(source=source, reason=reason, expected="AAC, MP3, Opus or FLAC sound")
    displayed_width, displayed_height = video.displayed
    pixels = max(video.width * video.height, displayed_width * displayed_height)
    for found, unit, limit, option in (
        (pixels, "pixels per picture", settings.max_pixels, "max_pixels"),
        (media.size, "bytes", settings.max_source, "max_source"),
        (media.duration or 0, "seconds", settings.max_duration, "max_duration"),
    ):
        if found > limit:
            raise MediaTooLarge(source=source, need=f"{found:.0f} {unit}", limit=f"{limit:.0f}", option=option)
    return video


async def survey(tools: Tools, path: Path, source: str, media: Media, settings: VideoSettings) -> Survey:
    """Read every packet of a file without decoding, and tell how far it really goes.

    A header's duration is a claim: half a Matroska file still claims the whole, and ffmpeg transcodes it with
    status 0. Reading costs seconds where encoding costs minutes, so damage is found before the work, not after.
    """
    command = [
        *(tools.ffprobe, "-v", "error", "-hide_banner"),
        *("-show_entries", "packet=stream_index,pts_time,dts_time,duration_time,flags", "-of", "csv=print_section=0"),
        *guarded_input(path, settings),
    ]
    tally = PacketTally(media)
    async with Program(command, limits_of(settings), doing="reading", source=source, hide=_folder(path)) as program:
        async for line in program.lines(silence=settings.stall, within=settings.max_wall):
            tally.add(line)
        await program.ended()
    return tally.survey()


class PacketTally:
    """Adds up ffprobe's packet lines: ``stream,pts,dts,duration,flags``."""

    def __init__(self, media: Media) -> None:
        self._start = media.start
        self._video = media.video.index if media.video else -1
        self._audio = media.audio.index if media.audio else None
        self._ends: dict[int, float] = {}
        self._first_picture = float("inf")
        self._frames = 0

    def add(self, line: bytes) -> None:
        """Count one line; what is not a packet's is passed over."""
        fields = line.decode(errors="replace").strip().split(",")
        if len(fields) < 5 or not fields[0].isdigit() or "D" in fields[4]:
            return  # D: outside the edit list, decoded but never shown
        stream = int(fields[0])
        self._frames += stream == self._video
        # AVI knows when to decode a picture, not when to show it; that is a few frames earlier at most.
        shown = _number(fields[1])
        shown = _number(fields[2]) if shown is None else shown
        if shown is not None:
            begin = shown - self._start
            end = begin + (_number(fields[3]) or 0.0)
            self._ends[stream] = max(end, self._ends.get(stream, 0.0))
            if stream == self._video:
                self._first_picture = min(begin, self._first_picture)

    def survey(self) -> Survey:
        """Return what was read so far."""
        video_end = self._ends.get(self._video, 0.0)
        return Survey(
            readable=max(self._ends.values(), default=0.0),
            video_end=video_end,
            video_length=max(0.0, video_end - max(0.0, min(self._first_picture, video_end))),
            audio_end=self._ends.get(self._audio) if self._audio is not None else None,
            frames=self._frames,
        )


def _folder(path: Path) -> str:
    return f"file:{path.parent}/"


def _video(raw: _Stream) -> VideoStream:
    rotations = [each.rotation for each in raw.side_data_list if each.rotation]
    return VideoStream(
        index=raw.index,
        codec=raw.codec_name,
        width=raw.width,
        height=raw.height,
        sample_aspect=_sample_aspect(raw.sample_aspect_ratio),
        rotation=rotations[0] if rotations else (_number(raw.tags.rotate) or 0.0),
        frame_rate=_rate(raw.avg_frame_rate) or _rate(raw.r_frame_rate),
        frames=int(_number(raw.nb_frames) or 0) or None,
        duration=_positive(raw.duration) or _clock(raw.tags.DURATION),
        pixel_format=raw.pix_fmt,
        interlaced=raw.field_order in {"tt", "bb", "tb", "bt"},
        transfer=raw.color_transfer,
    )


def _audio(raw: _Stream) -> AudioStream:
    return AudioStream(
        index=raw.index,
        codec=raw.codec_name,
        channels=raw.channels,
        sample_rate=int(_number(raw.sample_rate) or 0),
        duration=_positive(raw.duration) or _clock(raw.tags.DURATION),
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None  # not NaN, not infinite, not absurd


def _positive(text: str) -> float | None:
    number = _number(text)
    return number if number is not None and number > 0 else None


def _clock(text: str) -> float | None:
    """Read Matroska's '00:00:55.125000000' as seconds."""
    parts = [_number(part) for part in text.split(":")]
    if len(parts) != 3 or any(part is None for part in parts):
        return None
    hours, minutes, rest = (part or 0.0 for part in parts)
    return (hours * 60 + minutes) * 60 + rest or None


def _rate(text: str) -> Fraction | None:
    above, _, below = text.partition("/")
    if not (above.isdigit() and below.isdigit() and int(above) and int(below)):
        return None
    return Fraction(int(above), int(below))


def _sample_aspect(text: str) -> Fraction:
    """Read '64:45'; what no camera writes (0:1, 1:1000) is taken as square."""
    aspect = _rate(text.replace(":", "/"))
    return aspect if aspect is not None and Fraction(1, 4) <= aspect <= 4 else Fraction(1)
