"""What a source is: its headers, packets and some of its frames are read, and its film is chosen and described."""

from __future__ import annotations

from collections import Counter

import msgspec

from peerd.workers.video.colours import needs_mapping
from peerd.workers.video.errors import FormatRefused, MediaTooLarge, MediaUnreadable, ToolLacks
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.formats import CODECS, FORMATS_TEXT
from peerd.workers.video.media import Colours, Media, Shape, VideoStream
from peerd.workers.video.programs.ffmpeg import FfmpegJob, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe import look_at_frames, probe, read_packets
from peerd.workers.video.programs.ffprobe_output import Look
from peerd.workers.video.streams import choose_streams
from peerd.workers.video.timeline import PacketReader, Span, Timeline

_PEEKED_SECONDS = 20.0
_LOOKED_AT = 4  # frames
_UNTIL_DECODABLE = 300  # frames; pictures may be refreshed piece by piece, over some seconds
_FEW_KEYS = 4  # frames for a key frame; where all are, to look at all key frames would be to decode the file
_FIELDS_LOOKED_AT = 60
_FIELDS_KEY = "lavfi.idet.multiple.current_frame"


async def probe_source(context: ProgramContext, file: FileDescriptor) -> Media:
    """Probe a source, check it against the lists and limits, and choose its film.

    Of several pictures, those are considered that have packets in the first seconds.
    """
    media = await _probe_within_limits(context, file)
    spans = None
    if len(media.videos) > 1 or any(each.still for each in media.videos):
        spans = (await read_packets(context, file, PacketReader(media, seconds=_PEEKED_SECONDS))).spans
    media = choose_streams(media, context.codecs, spans)
    require_film(context, media, audio=False)
    return media


async def look_at_start(context: ProgramContext, file: FileDescriptor, media: Media) -> Media:
    """Complete the description of the film by what its first frames say."""
    video = require_film(context, media, audio=False)
    video = seen(video, await look_at_frames(context, file, video, _first(_LOOKED_AT)))
    _require_mapping(context, video)
    return msgspec.structs.replace(media, video=video)


async def survey_source(
    context: ProgramContext, file: FileDescriptor, *, audio: bool, max_fps: int
) -> tuple[Media, Timeline]:
    """Probe and check a source, read it to its end, and look at some of its frames. ``audio``: its sound is used."""
    media = await _probe_within_limits(context, file)
    reader = await read_packets(context, file, PacketReader(media, max_fps=max_fps))
    if reader.one_stream_pauses:
        reader = await read_packets(context, file, PacketReader(media, max_fps=max_fps, steady=True))
    media = choose_streams(media, context.codecs, reader.spans)
    video = require_film(context, media, audio=audio)
    timeline = reader.timeline(media)
    _check_timeline(context, media, timeline)
    look = await _look(context, file, video, timeline.video)
    timeline = _without_undecodable(timeline, look, media)
    complete = seen(video, look)
    _require_mapping(context, complete)
    if video.interlaced and not look.interlaced:
        complete = msgspec.structs.replace(complete, combed=await _find_fields(context, file, video))
    return msgspec.structs.replace(media, video=complete), timeline


async def _probe_within_limits(context: ProgramContext, file: FileDescriptor) -> Media:
    media = await probe(context, file)
    _require_at_most(context, "max_source", media.size, "bytes")
    _require_at_most(context, "max_duration", media.length or 0, "seconds")
    return media


def _require_at_most(context: ProgramContext, option: str, found: float, unit: str) -> None:
    """Refuse a source that exceeds a limit of the worker's options. Raises MediaTooLarge."""
    limit = getattr(context.settings, option)
    if found > limit:
        raise MediaTooLarge(source=context.source, need=f"{found:.0f} {unit}", limit=f"{limit:.0f}", option=option)


def require_film(context: ProgramContext, media: Media, *, audio: bool) -> VideoStream:
    """Return the film of a file, which is within the lists and limits. ``audio``: the sound is used too.

    Raises FormatRefused, MediaTooLarge, MediaUnreadable, ToolLacks.
    """
    settings, source, video, tools = context.settings, context.source, media.video, context.tools
    if video is None:
        films = [each.codec for each in media.videos if not each.still]
        if not films:
            raise FormatRefused(source=source, reason="it has no moving picture", expected=FORMATS_TEXT)
        if films[0] in context.codecs:
            raise MediaUnreadable(source=source, reason="not one frame of its picture can be read")
        if films[0] in CODECS | set(settings.codecs):
            raise ToolLacks(source=source, what=f"a decoder of {films[0]}", version=tools.version, path=tools.ffmpeg)
        reason = f"its video codec {films[0]} is not accepted"
        raise FormatRefused(source=source, reason=reason, expected="H.264, HEVC, VP9 or AV1")
    if video.width <= 0 or video.height <= 0:
        raise MediaUnreadable(source=source, reason="its picture has no size")
    if audio and media.sounds and not media.audio:
        reason = f"its audio codec {media.sounds[0].codec} is not accepted (audio=false leaves it out)"
        raise FormatRefused(source=source, reason=reason, expected="AAC, MP3, Opus or FLAC sound")
    width, height = video.displayed
    _require_at_most(context, "max_pixels", max(video.width * video.height, width * height), "pixels per picture")
    return video


def _check_timeline(context: ProgramContext, media: Media, timeline: Timeline) -> None:
    """Refuse a source without frames, with a single one, or longer than the limit, by its frames and not by its header.

    Raises MediaUnreadable, FormatRefused, MediaTooLarge.
    """
    if timeline.video.frames <= 0:
        raise MediaUnreadable(source=context.source, reason="not one frame of its picture can be read")
    if media.is_one_of(frozenset(("gif", "apng"))) and timeline.video.frames == 1:
        raise FormatRefused(source=context.source, reason="it is a still picture", expected=FORMATS_TEXT)
    _require_at_most(context, "max_duration", timeline.readable, "seconds")


def _require_mapping(context: ProgramContext, video: VideoStream) -> None:
    """Refuse colours that this build cannot convert. Raises ToolLacks."""
    tools = context.tools
    if needs_mapping(video) and not {"zscale", "tonemap"} <= tools.filters:
        what = "the filters zscale and tonemap for its colours of BT.2020"
        raise ToolLacks(source=context.source, what=what, version=tools.version, path=tools.ffmpeg)


def _first(packets: int) -> tuple[str, str]:
    return "-read_intervals", f"%+#{packets}"


async def _look(context: ProgramContext, file: FileDescriptor, video: VideoStream, span: Span) -> Look:
    """Look at all key frames, or at some frames where all are key frames; and at the first ones where they matter."""
    places = ",".join(f"{span.length * place / _LOOKED_AT:.3f}%+#2" for place in range(1, _LOOKED_AT))
    few_keys = span.keys * _FEW_KEYS < span.frames
    spread = ("-skip_frame", "nokey") if few_keys else ("-read_intervals", f"%+#2,{places}")
    if not span.undecodable and video.codec != "hevc":
        return await look_at_frames(context, file, video, spread)
    look = await look_at_frames(context, file, video, _first(span.undecodable + _LOOKED_AT))
    if not look.frames:
        look = await look_at_frames(context, file, video, _first(span.undecodable + _UNTIL_DECODABLE))
    if few_keys:
        keys = await look_at_frames(context, file, video, spread)
        look.interlaced = look.interlaced or min(keys.interlaced, 1)
        look.shapes += [shape for shape in keys.shapes if shape not in look.shapes]
    return look


def _without_undecodable(timeline: Timeline, look: Look, media: Media) -> Timeline:
    """Return the timeline without the frames at the start that depend on frames before the file's begin."""
    first = look.key if look.key is not None else look.first
    if not timeline.video.undecodable or first is None:
        return timeline
    shown = timeline.video.starting_at(first - media.start)
    lost = max(0.0, shown.begin - timeline.video.begin)
    return msgspec.structs.replace(timeline, video=shown, lost=lost, lost_errors=look.errors)


def seen(video: VideoStream, look: Look) -> VideoStream:
    """Return the picture with what its frames say, where its header does not."""
    told, shown = video.colours, look.colours
    header = Shape(video.width, video.height, video.sample_aspect, video.pixel_format)
    shape = max(look.shapes, key=lambda each: each.area) if len(look.shapes) > 1 else header
    # ffmpeg does not weave the fields of HEVC: each, upper and lower, becomes a frame.
    fields = video.codec == "hevc" and look.interlaced > 0 and 0 < look.tops < look.frames
    return msgspec.structs.replace(
        video,
        width=shape.width,
        height=shape.height * 2 if fields else shape.height,
        sample_aspect=shape.sample_aspect,
        pixel_format=look.shapes[0].pixel_format if look.shapes else video.pixel_format,
        changes=len(look.shapes) > 1,
        fields=fields,
        interlaced=video.interlaced or look.interlaced > 0,
        colours=Colours(
            told.primaries or shown.primaries, told.transfer or shown.transfer, told.matrix or shown.matrix
        ),
    )


async def _find_fields(context: ProgramContext, file: FileDescriptor, video: VideoStream) -> str:
    """Look at the content of frames that the header calls interlaced and that do not say so.

    Returns the first field, 'tff' or 'bff'; '' where they are whole.
    """
    found = Counter[bytes]()
    filters = f"idet,metadata=mode=print:key={_FIELDS_KEY}:file=-"
    arguments = ("-map", f"0:{video.index}", "-vf", filters, "-frames:v", str(_FIELDS_LOOKED_AT))
    job = FfmpegJob("looking at", file, arguments, None, 0.0, watch=lambda line: found.update([line.strip()]))
    await run_ffmpeg(context, job)
    counts = {kind: found[f"{_FIELDS_KEY}={kind}".encode()] for kind in ("tff", "bff", "progressive")}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] and best != "progressive" else ""
