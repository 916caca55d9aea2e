"""Parse the output of ffprobe, which a hostile file may control: decoded leniently, checked by type."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from peerd.workers.video.errors import MediaUnreadable
from peerd.workers.video.media import AudioStream, Colours, Media, Shape, VideoStream
from peerd.workers.video.timeline import parse_number

PROBE_ENTRIES = (
    "format=format_name,duration,start_time,size:"
    "stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,avg_frame_rate,r_frame_rate,nb_frames,"
    "pix_fmt,field_order,color_space,color_transfer,color_primaries,channels,channel_layout,sample_rate:"
    "stream_disposition=default,attached_pic,still_image,timed_thumbnails,comment,visual_impaired,hearing_impaired:"
    "stream_tags=rotate,language:"
    "stream_side_data=rotation:program=program_id:program_stream=index"
)
"""The entries that `parse_probe` reads."""
FRAME_ENTRIES = (
    "frame=pts_time,key_frame,width,height,sample_aspect_ratio,pix_fmt,interlaced_frame,top_field_first,"
    "color_space,color_transfer,color_primaries"
)
"""The entries that `Look` reads."""
_MAX_SHAPES = 64
_UNKNOWN = frozenset(("", "unknown", "reserved", "unspecified"))


class _SideData(msgspec.Struct):
    rotation: float = 0.0


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
    pix_fmt: str = ""
    field_order: str = ""
    color_space: str = ""
    color_transfer: str = ""
    color_primaries: str = ""
    channels: int = 0
    channel_layout: str = ""
    sample_rate: str = ""
    disposition: dict[str, int] = {}
    tags: dict[str, str] = {}
    side_data_list: list[_SideData] = msgspec.field(default_factory=list)


class _Format(msgspec.Struct):
    format_name: str = ""
    duration: str = ""
    start_time: str = ""
    size: str = ""


class _Program(msgspec.Struct):
    program_id: int = 0
    streams: list[dict[str, object]] = []


class _ProbeOutput(msgspec.Struct):
    format: _Format = msgspec.field(default_factory=_Format)
    streams: list[_Stream] = msgspec.field(default_factory=list)
    programs: list[_Program] = msgspec.field(default_factory=list)


def parse_probe(answer: bytes, source: str = "the file") -> Media:
    """Parse ffprobe's JSON; no stream is chosen yet.

    Raises MediaUnreadable when it is not such JSON.
    """
    try:
        raw = msgspec.json.decode(answer.decode(errors="replace"), type=_ProbeOutput)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MediaUnreadable(source=source, reason=f"ffprobe's answer makes no sense ({error})") from error
    of_program = {each.program_id: [stream.get("index") for stream in each.streams] for each in raw.programs}
    programs = {
        stream.index: frozenset(number for number, indexes in of_program.items() if stream.index in indexes)
        for stream in raw.streams
    }
    return Media(
        format=raw.format.format_name,
        size=int(parse_number(raw.format.size) or 0),
        duration=_parse_positive(raw.format.duration),
        start=parse_number(raw.format.start_time) or 0.0,
        videos=tuple(_video(each, programs[each.index]) for each in raw.streams if each.codec_type == "video"),
        sounds=tuple(_audio(each, programs[each.index]) for each in raw.streams if each.codec_type == "audio"),
    )


def _video(raw: _Stream, programs: frozenset[int]) -> VideoStream:
    rotations = [each.rotation for each in raw.side_data_list if each.rotation]
    marks = raw.disposition
    return VideoStream(
        index=raw.index,
        codec=raw.codec_name,
        width=raw.width,
        height=raw.height,
        sample_aspect=_parse_sample_aspect(raw.sample_aspect_ratio),
        rotation=rotations[0] if rotations else (parse_number(raw.tags.get("rotate", "")) or 0.0),
        frame_rate=_parse_rate(raw.avg_frame_rate) or _parse_rate(raw.r_frame_rate),
        frames=int(parse_number(raw.nb_frames) or 0) or None,
        pixel_format=raw.pix_fmt,
        interlaced=raw.field_order in {"tt", "bb", "tb", "bt"},
        colours=_parse_colours(raw.color_primaries, raw.color_transfer, raw.color_space),
        default=bool(marks.get("default")),
        still=any(marks.get(mark) for mark in ("attached_pic", "still_image", "timed_thumbnails")),
        programs=programs,
    )


def _audio(raw: _Stream, programs: frozenset[int]) -> AudioStream:
    marks = raw.disposition
    language = "".join(each for each in raw.tags.get("language", "")[:8] if each.isalpha())
    return AudioStream(
        index=raw.index,
        codec=raw.codec_name,
        channels=raw.channels,
        layout=raw.channel_layout,
        sample_rate=int(parse_number(raw.sample_rate) or 0),
        language="" if language == "und" else language,
        default=bool(marks.get("default")),
        aside=any(marks.get(mark) for mark in ("comment", "visual_impaired", "hearing_impaired")),
        programs=programs,
    )


def _parse_colours(primaries: str, transfer: str, matrix: str) -> Colours:
    return Colours(*("" if each in _UNKNOWN else each for each in (primaries, transfer, matrix)))


class Look(msgspec.Struct):
    """What a decoder shows of some frames: their shapes, fields and colours.

    ``first`` and ``key`` are the times of the first frame and the first key frame, in seconds as ffprobe counts.

    ``tops`` counts those that begin with the upper field. ``errors``: the lines that the decoder printed.
    """

    first: float | None = None
    key: float | None = None
    frames: int = 0
    interlaced: int = 0
    tops: int = 0
    colours: Colours = Colours()
    shapes: list[Shape] = []
    errors: int = 0

    def add(self, line: bytes) -> None:
        """Add one of ffprobe's lines, ``key=value|key=value``; other lines are ignored."""
        fields = dict(each.partition("=")[::2] for each in line.decode(errors="replace").strip().split("|"))
        if "width" not in fields:
            return
        time = parse_number(fields.get("pts_time", ""))
        if time is not None and (self.first is None or time < self.first):
            self.first = time
        if self.key is None and fields.get("key_frame") == "1":
            self.key = time
        width, height = (int(parse_number(fields.get(name, "")) or 0) for name in ("width", "height"))
        aspect = _parse_sample_aspect(fields.get("sample_aspect_ratio", ""))
        shape = Shape(width, height, aspect, fields.get("pix_fmt", ""))
        if min(width, height) > 0 and shape not in self.shapes and len(self.shapes) < _MAX_SHAPES:
            self.shapes.append(shape)
        if not self.frames:
            names = (fields.get(f"color_{each}", "") for each in ("primaries", "transfer", "space"))
            self.colours = _parse_colours(*names)
        self.frames += 1
        self.interlaced += fields.get("interlaced_frame") == "1"
        self.tops += fields.get("top_field_first") == "1"


def _parse_positive(text: str) -> float | None:
    value = parse_number(text)
    return value if value is not None and value > 0 else None


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
