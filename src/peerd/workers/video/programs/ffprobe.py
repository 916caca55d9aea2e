"""Runs of ffprobe over a file: its headers, its packets, some of its frames."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.workers.video.errors import FormatRefused, MediaTooLarge
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.formats import FORMATS, FORMATS_TEXT
from peerd.workers.video.media import Media, VideoStream
from peerd.workers.video.programs.ffmpeg_errors import explain_failure
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext
from peerd.workers.video.programs.ffprobe_output import FRAME_ENTRIES, PROBE_ENTRIES, Look, parse_probe
from peerd.workers.video.programs.program import Program, program_limits
from peerd.workers.video.timeline import PACKET_ENTRIES, PacketReader

_PICTURE_HEADS = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftypavif")
_MAX_STREAMS = 64
_LOOKING = "looking at"  # the one activity that decodes as an encoder does, and has its memory
_MAX_PROBE_OUTPUT = 4 * 2**20  # bytes
_ANALYSED = ("-analyzeduration", "60M", "-probesize", "50M")
"""How far ffmpeg looks for the beginning of a stream, in microseconds and bytes: sound may begin half a minute late."""


def guarded_input(context: ProgramContext, file: FileDescriptor, formats: Sequence[str] = FORMATS) -> list[str]:
    """Return the options that must stand before every input, for ffmpeg and ffprobe alike, and the input itself.

    Files only, listed containers and codecs only, bounded pictures and streams. The program must inherit the file.
    """
    return [
        *("-protocol_whitelist", "file"),
        *("-format_whitelist", ",".join(formats)),
        *("-codec_whitelist", ",".join(context.decoders)),
        *("-max_streams", str(_MAX_STREAMS)),
        *("-max_pixels", str(context.settings.max_pixels)),
        *_ANALYSED,
        *("-i", f"file:{file.address}"),
    ]


def _ffprobe(
    context: ProgramContext, show: Sequence[str], file: FileDescriptor, doing: str, formats: Sequence[str] = FORMATS
) -> Program:
    """Return a run of ffprobe over a file; ``show`` selects the entries and their format."""
    command = [context.tools.ffprobe, "-v", "repeat+error", "-hide_banner", "-threads", "1", *show]
    settings = context.settings
    limits = program_limits(settings, settings.max_memory if doing == _LOOKING else settings.max_probe_memory)
    command += guarded_input(context, file, formats)
    # ffprobe makes a decoder for each stream, used or not, and ends where that is refused; it gives bytes only to
    # those of the list, which holds where the file is opened, and to the stream whose frames are asked for.
    every = ",".join(context.tools.all_decoders)
    made = [word for kind in "vasd" for word in (f"-codec_whitelist:{kind}", every)]
    command[-2:-2] = ["-strict", "experimental", *made]
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
            with file.reader() as reader:
                head = reader.read(12)[4:]
            if status > 0 and head in _PICTURE_HEADS:  # their demuxer is MP4's
                reason = "it is a still picture (HEIC or AVIF)"
                raise FormatRefused(source=context.source, reason=reason, expected=FORMATS_TEXT)
            raise explain_failure(context, "probing", status, program.errors.kept, probing=True)
    return parse_probe(answer, context.source)


async def read_packets(
    context: ProgramContext, file: FileDescriptor, reader: PacketReader, formats: Sequence[str] = FORMATS
) -> PacketReader:
    """Give every packet of a file to ``reader``, without decoding, and return it.

    A header's duration is a claim: half a Matroska file still claims the whole, and ffmpeg transcodes it with
    status 0. Reading takes seconds where encoding takes minutes, so damage is found before the work.

    Raises MediaTooLarge when there are more than ``max_packets``.
    """
    settings, source = context.settings, context.source
    show = ["-show_entries", PACKET_ENTRIES, "-of", "csv=print_section=0"]
    if reader.seconds is not None:
        show += ["-read_intervals", f"%+{reader.seconds:.3f}"]
    async with _ffprobe(context, show, file, "reading", formats) as program:
        async for line in program.lines(silence=settings.stall, within=settings.max_wall):
            reader.add(line)
            if reader.packets > settings.max_packets:
                limit = str(settings.max_packets)
                raise MediaTooLarge(source=source, need="more packets", limit=limit, option="max_packets")
        status = await program.ended()
        if status < 0:  # after another failure the missing packets show how far the file can be read
            raise explain_failure(context, "reading", status, program.errors.kept, probing=True)
    return reader


async def look_at_frames(
    context: ProgramContext, file: FileDescriptor, video: VideoStream, which: Sequence[str]
) -> Look:
    """Decode some frames of a picture; ``which``: the arguments that select them."""
    show = ["-select_streams", str(video.index), *which, "-show_entries", FRAME_ENTRIES, "-of", "compact=p=0"]
    look = Look()
    async with _ffprobe(context, show, file, _LOOKING) as program:
        async for line in program.lines(silence=context.settings.stall, within=context.settings.max_wall):
            look.add(line)
        status = await program.ended()
        if status < 0:
            raise explain_failure(context, _LOOKING, status, program.errors.kept)
        look.errors = program.errors.count
    return look
