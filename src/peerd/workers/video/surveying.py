"""Read every packet of a file, without decoding: how far it really goes."""

from __future__ import annotations

from pathlib import Path

from peerd.workers.video.answers import number
from peerd.workers.video.binaries import Tools
from peerd.workers.video.media import Media, Survey
from peerd.workers.video.probing import guarded_input
from peerd.workers.video.process import Program, limits_of
from peerd.workers.video.settings import VideoSettings


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
    async with Program(
        command, limits_of(settings), doing="reading", source=source, hide=f"file:{path.parent}/"
    ) as program:
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
        shown = number(fields[1])
        shown = number(fields[2]) if shown is None else shown
        if shown is not None:
            begin = shown - self._start
            end = begin + (number(fields[3]) or 0.0)
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
