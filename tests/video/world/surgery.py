"""Steps that no option of ffmpeg does: bytes replaced, files cut and joined, a stream of H.264 fields written."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

from tests.video.media_helpers import output_of
from tests.video.world.film import draw
from tests.video.world.judge import FFPROBE


def patch(folder: Path, name: str, old: str, new: str) -> None:
    """Replace the first occurrence of some bytes."""
    content = (folder / name).read_bytes()
    assert old.encode() in content, f"{name} has no {old}"
    (folder / name).write_bytes(content.replace(old.encode(), new.encode(), 1))


def turn(folder: Path, name: str, degrees: str) -> None:
    """Write a rotation into the matrix of the first track (ISO 14496-12, tkhd); versions of ffmpeg differ in this."""
    quarter = {
        "90": (0, 1, -1, 0),
        "180": (-1, 0, 0, -1),
        "270": (0, -1, 1, 0),
        "45": (0.7071, 0.7071, -0.7071, 0.7071),
    }
    a, b, c, d = (round(each * 0x10000) for each in quarter[degrees])
    content = (folder / name).read_bytes()
    identity = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    where = content.index(identity, content.index(b"tkhd"))
    matrix = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 0x40000000)
    (folder / name).write_bytes(content[:where] + matrix + content[where + len(identity) :])


def cat(folder: Path, result: str, *parts: str) -> None:
    (folder / result).write_bytes(b"".join((folder / part).read_bytes() for part in parts))


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text.replace("\\n", "\n"))


def shorten(folder: Path, name: str, share: str) -> None:
    """Keep the first `share` percent of a file."""
    os.truncate(folder / name, (folder / name).stat().st_size * int(share) // 100)


def garbage(folder: Path, name: str, count: str) -> None:
    with (folder / name).open("ab") as file:
        file.write(random.Random(5).randbytes(int(count)))


def _packets(path: Path, kind: str) -> list[tuple[int, int]]:
    """Place and size of the packets of the first stream of a kind (v, a)."""
    shown = ("-select_streams", f"{kind}:0", "-show_entries", "packet=pos,size", "-of", "csv=p=0", path)
    lines = output_of(FFPROBE, "-v", "error", *shown).decode().split()
    return [(int(place), int(size)) for size, place in (line.split(",")[:2] for line in lines)]


def skip_packets(folder: Path, name: str, count: str) -> None:
    """Drop everything before the picture's packet of this number, as a recording that began in the middle."""
    place, _ = _packets(folder / name, "v")[int(count)]
    (folder / name).write_bytes((folder / name).read_bytes()[place:])


def noise(folder: Path, name: str, kind: str) -> None:
    """Replace the packets of the picture (v) or the sound (a) by noise."""
    content = bytearray((folder / name).read_bytes())
    for place, size in _packets(folder / name, kind):
        content[place : place + size] = random.Random(place).randbytes(size)
    (folder / name).write_bytes(content)


def _bits(*fields: int | str) -> bytes:
    """Texts of bits, and numbers as Exp-Golomb codes (ISO 14496-10, 9.1), filled with zeros."""
    codes = [
        each if isinstance(each, str) else f"{each + 1:b}".zfill(2 * (each + 1).bit_length() - 1) for each in fields
    ]
    text = "".join(codes)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def _unit(header: int, content: bytes, unescaped: bytes = b"") -> bytes:
    escaped = bytearray()
    for byte in content:
        if byte <= 3 and escaped[-2:] == b"\0\0":
            escaped.append(3)
        escaped.append(byte)
    return b"\0\0\0\1" + bytes([header]) + bytes(escaped) + unescaped


def write_fields(folder: Path, name: str, count: str) -> None:
    """A bit-exact H.264 stream of field pictures (PAFF), 160x96: each field is a picture of its own, in I_PCM.

    ISO 14496-10, 7.3: what libx264 cannot write and camcorders of AVCHD do. The film's luma, without colour.
    """
    width, height = 160, 96
    # Main profile, level 3; 8 bits of frame number and of order, one reference; fields; no cropping, no vui.
    sequence = _bits(f"{77 << 16 | 30:024b}", 0, 4, 0, 4, 1, "0", width // 16 - 1, height // 32 - 1, "00100", "1")
    picture = _bits(0, 0, "00", 0, 0, 0, "000", 0, 0, 0, "000", "1")
    with (folder / name).open("wb") as file:
        file.write(_unit(0x67, sequence) + _unit(0x68, picture))
        for field in range(int(count)):
            image = draw(width, height, "A", field // 2, field)
            rows = [image[3 * width * y : 3 * width * (y + 1)] for y in range(field % 2, height, 2)]
            file.write(_field(field, [bytes(16 + value * 219 // 255 for value in row[1::3]) for row in rows]))


def _field(field: int, rows: list[bytes]) -> bytes:
    """One field as a slice of macroblocks in I_PCM; luma of 16 at least, so that no escape is needed."""
    place, is_start = field % 50, field % 50 == 0
    start = (field // 50 % 2, f"{place:08b}", "00") if is_start else (f"{place:08b}", "0")
    head = _bits(0, 7, 0, f"{place // 2:08b}", f"1{field % 2}", *start, 0, 25)  # 25: I_PCM
    cut = {line: [line[x : x + 16] for x in range(0, len(line), 16)] for line in set(rows)}
    blocks = [
        b"".join(cut[line][column] for line in rows[row : row + 16]) + b"\x80" * 128
        for row in range(0, len(rows), 16)
        for column in range(len(rows[0]) // 16)
    ]
    return _unit(0x65 if is_start else 0x61, head, b"\x0d\x00".join(blocks) + b"\x80")
