"""Parse the output of ffprobe, which a hostile file may control: decoded leniently, checked by type."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from peerd.workers.video.errors import MediaUnreadable
from peerd.workers.video.media import AudioStream, Media, Survey, VideoStream

PROBE_ENTRIES = (
    "format=format_name,duration,start_time,size:"
    "stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,avg_frame_rate,r_frame_rate,nb_frames,"
    "duration,pix_fmt,field_order,color_transfer,channels,sample_rate:"
    "stream_disposition=default,attached_pic:stream_tags=DURATION,rotate:stream_side_data=rotation"
)
"""The entries that `parse_probe` reads."""
PACKET_ENTRIES = "packet=stream_index,pts_time,dts_time,duration_time,flags"
"""The entries that `PacketCounter` reads."""
_BACKWARD_TOLERANCE = 0.1
_FORWARD_TOLERANCE = 10.0  # above it ffmpeg itself doubts timestamps (-dts_delta_threshold)


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


class _ProbeOutput(msgspec.Struct):
    format: _Format = msgspec.field(default_factory=_Format)
    streams: list[_Stream] = msgspec.field(default_factory=list)


def parse_probe(answer: bytes, source: str = "the file") -> Media:
    """Parse ffprobe's JSON: the first real picture, the default (else first) sound.

    Raises MediaUnreadable when it is not such JSON.
    """
    try:
        raw = msgspec.json.decode(answer.decode(errors="replace"), type=_ProbeOutput)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MediaUnreadable(source=source, reason=f"ffprobe's answer makes no sense ({error})") from error
    pictures = [s for s in raw.streams if s.codec_type == "video" and not s.disposition.attached_pic]
    sounds = sorted((s for s in raw.streams if s.codec_type == "audio"), key=lambda s: not s.disposition.default)
    return Media(
        format=raw.format.format_name,
        size=int(parse_number(raw.format.size) or 0),
        duration=_parse_positive(raw.format.duration),
        start=parse_number(raw.format.start_time) or 0.0,
        video=_video(pictures[0]) if pictures else None,
        audio=_audio(sounds[0]) if sounds else None,
    )


def _video(raw: _Stream) -> VideoStream:
    rotations = [each.rotation for each in raw.side_data_list if each.rotation]
    return VideoStream(
        index=raw.index,
        codec=raw.codec_name,
        width=raw.width,
        height=raw.height,
        sample_aspect=_parse_sample_aspect(raw.sample_aspect_ratio),
        rotation=rotations[0] if rotations else (parse_number(raw.tags.rotate) or 0.0),
        frame_rate=_parse_rate(raw.avg_frame_rate) or _parse_rate(raw.r_frame_rate),
        frames=int(parse_number(raw.nb_frames) or 0) or None,
        duration=_parse_positive(raw.duration) or _parse_clock(raw.tags.DURATION),
        pixel_format=raw.pix_fmt,
        interlaced=raw.field_order in {"tt", "bb", "tb", "bt"},
        transfer=raw.color_transfer,
    )


def _audio(raw: _Stream) -> AudioStream:
    return AudioStream(
        index=raw.index,
        codec=raw.codec_name,
        channels=raw.channels,
        sample_rate=int(parse_number(raw.sample_rate) or 0),
        duration=_parse_positive(raw.duration) or _parse_clock(raw.tags.DURATION),
    )


def parse_number(text: str | bytes) -> float | None:
    """Parse a number; N/A and absurd values are None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None  # not NaN, not infinite, not absurd


def _parse_positive(text: str) -> float | None:
    value = parse_number(text)
    return value if value is not None and value > 0 else None


def _parse_clock(text: str) -> float | None:
    """Parse Matroska's '00:00:55.125000000' as seconds."""
    parts = [parse_number(part) for part in text.split(":")]
    if len(parts) != 3 or any(part is None for part in parts):
        return None
    hours, minutes, rest = (part or 0.0 for part in parts)
    return (hours * 60 + minutes) * 60 + rest or None


def _parse_rate(text: str) -> Fraction | None:
    above, _, below = text.partition("/")
    digits = above + below
    if not (digits.isascii() and above.isdigit() and below.isdigit() and len(digits) < 40):
        return None
    return Fraction(int(above), int(below)) if int(above) and int(below) else None


def _parse_sample_aspect(text: str) -> Fraction:
    """Parse '64:45'; values that no camera writes (0:1, 1:1000) are taken as square."""
    aspect = _parse_rate(text.replace(":", "/"))
    return aspect if aspect is not None and Fraction(1, 4) <= aspect <= 4 else Fraction(1)


class PacketCounter:
    """Sums up ffprobe's packet lines: ``stream,pts,dts,duration,flags``."""

    def __init__(self, media: Media) -> None:
        self.packets = 0
        self._start = media.start
        self._video = media.video.index if media.video else -1
        self._audio = media.audio.index if media.audio else None
        self._ends: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._first_picture = float("inf")
        self._frames = 0
        self._jumps = 0

    def add(self, line: bytes) -> None:
        """Count one line; lines that are no packet are ignored."""
        fields = line.split(b",")
        if len(fields) < 5 or not fields[0].isdigit():
            return
        self.packets += 1
        if b"D" in fields[4]:
            return  # outside the edit list, decoded but never shown
        stream = int(fields[0])
        self._frames += stream == self._video
        shown, decoded = parse_number(fields[1]), parse_number(fields[2])
        if decoded is not None:
            self._note_jump(stream, decoded)
        # AVI has the decode time alone, which is a few frames earlier at most.
        shown = decoded if shown is None else shown
        if shown is not None:
            begin = shown - self._start
            end = begin + (parse_number(fields[3]) or 0.0)
            self._ends[stream] = max(end, self._ends.get(stream, 0.0))
            if stream == self._video:
                self._first_picture = min(begin, self._first_picture)

    def _note_jump(self, stream: int, decoded: float) -> None:
        last = self._last.get(stream, decoded)
        if stream in (self._video, self._audio) and not -_BACKWARD_TOLERANCE <= decoded - last <= _FORWARD_TOLERANCE:
            self._jumps += 1
        self._last[stream] = decoded

    def survey(self) -> Survey:
        video_end = self._ends.get(self._video, 0.0)
        return Survey(
            readable=max(self._ends.values(), default=0.0),
            video_end=video_end,
            video_length=max(0.0, video_end - max(0.0, min(self._first_picture, video_end))),
            audio_end=self._ends.get(self._audio) if self._audio is not None else None,
            frames=self._frames,
            jumps=self._jumps,
        )
