"""Runs of ffprobe over a file, and the check of its result against the lists and limits."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.workers.video.errors import FormatRefused, MediaTooLarge, MediaUnreadable
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.media import AUDIO_CODECS, FORMATS, FORMATS_TEXT, VIDEO_CODECS, Media, Survey, VideoStream
from peerd.workers.video.programs.ffmpeg_errors import explain_unreadable
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe_output import PACKET_ENTRIES, PROBE_ENTRIES, PacketCounter, parse_probe
from peerd.workers.video.programs.program import Program, program_limits

_MAX_STREAMS = 64
_MAX_PROBE_OUTPUT = 4 * 2**20  # bytes


def guarded_input(context: ProgramContext, file: FileDescriptor, formats: Sequence[str] = FORMATS) -> list[str]:
    """Return the options that must stand before every input, for ffmpeg and ffprobe alike, and the input itself.

    Files only, listed containers and codecs only, bounded pictures and streams. The program must inherit the file.
    """
    return [
        *("-protocol_whitelist", "file"),
        *("-format_whitelist", ",".join(formats)),
        *("-codec_whitelist", ",".join(context.tools.decoders)),
        *("-max_streams", str(_MAX_STREAMS)),
        *("-max_pixels", str(context.settings.max_pixels)),
        *("-i", f"file:{file.address}"),
    ]


def _ffprobe(
    context: ProgramContext, show: Sequence[str], file: FileDescriptor, doing: str, formats: Sequence[str] = FORMATS
) -> Program:
    """Return a run of ffprobe over a file; ``show`` selects the entries and their format."""
    command = [context.tools.ffprobe, "-v", "error", "-hide_banner", "-threads", "1", *show]
    limits = program_limits(context.settings, memory=context.settings.max_probe_memory)
    command += guarded_input(context, file, formats)
    return Program(command, limits, doing=doing, source=context.source, files=[file])


async def probe(context: ProgramContext, file: FileDescriptor, formats: Sequence[str] = FORMATS) -> Media:
    """Read the headers of a file.

    Raises FormatRefused, MediaUnreadable, MediaTooLarge, EncoderFailed.
    """
    show = ("-show_entries", PROBE_ENTRIES, "-of", "json")
    async with _ffprobe(context, show, file, "probing", formats) as program:
        answer = await program.read_all(_MAX_PROBE_OUTPUT, within=context.settings.probe_timeout)
        status = await program.ended()
        if status != 0:
            memory = context.settings.max_probe_memory
            raise explain_unreadable(context.source, "probing", status, program.errors.kept, memory=memory)
    return parse_probe(answer, context.source)


async def survey(context: ProgramContext, file: FileDescriptor, media: Media) -> Survey:
    """Read every packet of a file without decoding, and return how much can be read.

    A header's duration is a claim: half a Matroska file still claims the whole, and ffmpeg transcodes it with
    status 0. Reading takes seconds where encoding takes minutes, so damage is found before the work.

    Raises MediaTooLarge when there are more than ``max_packets``.
    """
    settings, source = context.settings, context.source
    show = ("-show_entries", PACKET_ENTRIES, "-of", "csv=print_section=0")
    counter = PacketCounter(media)
    async with _ffprobe(context, show, file, "reading") as program:
        async for line in program.lines(silence=settings.stall, within=settings.max_wall):
            counter.add(line)
            if counter.packets > settings.max_packets:
                limit = str(settings.max_packets)
                raise MediaTooLarge(source=source, need="more packets", limit=limit, option="max_packets")
        status = await program.ended()
        if status < 0:  # after another failure the missing packets show how far the file can be read
            memory = settings.max_probe_memory
            raise explain_unreadable(source, "reading", status, program.errors.kept, memory=memory)
    return counter.survey()


def require_acceptable(context: ProgramContext, media: Media, *, audio: bool) -> VideoStream:
    """Return the picture of a file that is within the lists and limits. ``audio``: the sound is used too.

    Raises FormatRefused, MediaTooLarge.
    """
    settings, source, video = context.settings, context.source, media.video
    if video is None:
        raise FormatRefused(source=source, reason="it has no moving picture", expected=FORMATS_TEXT)
    if video.codec not in VIDEO_CODECS:
        reason = f"its video codec {video.codec} is not accepted"
        raise FormatRefused(source=source, reason=reason, expected="H.264, HEVC, VP9 or AV1")
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
