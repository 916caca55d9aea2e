"""What an attacker brings: another user's hands in the media directory, programs that act at the chosen moment."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.video.media_helpers import RecordingContext

NOBODY = 65534


def as_another_user(command: str, *arguments: object) -> None:
    """Run a shell command as a user that is not the worker's; without root, as oneself, with the same effect on files.

    ``$1`` and so on are the arguments.
    """
    whose = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(["sh", "-ec", command, "sh", *map(str, arguments)], check=True, timeout=20, **whose)  # type: ignore[call-overload]


class Interrupted(RecordingContext):
    """Calls a function once, when the task says a note for the first time: a moment inside of its work."""

    def __init__(self, directory: Path, at: str, attack: Callable[[], None], **options: Any) -> None:
        super().__init__(directory, **options)
        self._at = at
        self._attack: Callable[[], None] | None = attack

    async def progress(self, fraction: float, note: str | None = None) -> None:
        await super().progress(fraction, note)
        if self._attack is not None and self._at in (note or ""):
            attack, self._attack = self._attack, None
            attack()


def wrapped_tools(folder: Path, before: str) -> Path:
    """Real ffmpeg and ffprobe behind scripts that first run ``before``, but not when they are asked what they can.

    Returns the folder for the PATH.
    """
    folder.mkdir()
    for name in ("ffmpeg", "ffprobe"):
        real = shutil.which(name)
        assert real is not None
        script = folder / name
        asked = "-version|-filters|-codecs|-decoders"
        script.write_text(
            f'#!/bin/sh\nfor word; do case "$word" in {asked}) exec {real} "$@";; esac; done\n'
            f'{before}\nexec {shlex.quote(real)} "$@"\n'
        )
        script.chmod(0o755)
    return folder


def exchange_for_link(folder: Path, target: Path) -> str:
    """A shell command that moves a folder away and puts a link to another one in its place, once."""
    away, folder_, target_ = (shlex.quote(str(path)) for path in (f"{folder}.away", folder, target))
    return f"if [ ! -e {away} ]; then mv {folder_} {away}; ln -s {target_} {folder_}; fi"


def tiny_samples(clip: bytes, count: int, content: int) -> bytes:
    """An MP4, from one of H.264, whose index tells of ``count`` pictures of a byte; ``content`` bytes are there."""

    def box(name: bytes, *parts: bytes) -> bytes:
        return struct.pack(">I", 8 + sum(map(len, parts))) + name + b"".join(parts)

    def full(name: bytes, *parts: bytes) -> bytes:
        return box(name, bytes(4), *parts)

    start = clip.index(b"avc1", clip.index(b"stsd")) - 4
    description = clip[start : start + int.from_bytes(clip[start : start + 4], "big")]
    kind = box(b"ftyp", b"isom", bytes(4), b"isom")
    matrix = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    table = box(
        b"stbl",
        full(b"stsd", struct.pack(">I", 1), description),
        full(b"stts", struct.pack(">III", 1, count, 1)),
        full(b"stsc", struct.pack(">IIII", 1, 1, count, 1)),
        full(b"stsz", struct.pack(">II", 1, count)),
        full(b"stco", struct.pack(">II", 1, len(kind) + 8)),
    )
    where = box(b"dinf", full(b"dref", struct.pack(">I", 1), box(b"url ", b"\0\0\0\1")))
    media = box(
        b"mdia",
        full(b"mdhd", struct.pack(">IIIIHH", 0, 0, 90_000, count, 0x55C4, 0)),
        full(b"hdlr", bytes(4), b"vide", bytes(13)),
        box(b"minf", full(b"vmhd", bytes(8)), where, table),
    )
    head = (
        struct.pack(">IIIII", 0, 0, 1, 0, count // 90) + bytes(16) + matrix + struct.pack(">II", 320 << 16, 180 << 16)
    )
    track = box(b"trak", box(b"tkhd", b"\0\0\0\7", head), media)
    film = struct.pack(">IIIIIH", 0, 0, 1000, count // 90, 0x10000, 0x100) + bytes(10) + matrix + bytes(24)
    index = box(b"moov", full(b"mvhd", film, struct.pack(">I", 2)), track)
    return kind + box(b"mdat", bytes(content)) + index
