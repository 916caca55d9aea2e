"""The background tasks: drawing takes seconds, which no web request should."""

import struct
import zlib
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from peerd import Cancel, Context, Queue

FOLDER = Path("drawn")

pictures = Queue("pictures")


@pictures.task(max_attempts=2)
def draw(
    ctx: Context,
    title: Annotated[str, Meta(min_length=1, max_length=80)],
    width: Annotated[int, Meta(ge=16, le=2000)] = 400,
    depth: Annotated[int, Meta(ge=1, le=5000)] = 100,
) -> dict[str, Any]:
    """Draw the Mandelbrot set, and tell the site. A plain function runs in a thread, so it may compute.

    It may run twice, as every task may: the second picture replaces the first, and is the same.
    """
    height = width * 2 // 3
    lines = []
    for number in range(height):
        if ctx.cancelled:
            raise Cancel("nobody wants it any more")
        ctx.progress(number / height, f"line {number} of {height}")
        lines.append(line(2 * number / height - 1, width, depth))
    FOLDER.mkdir(exist_ok=True)
    unfinished = FOLDER / f"{ctx.task.id}.{ctx.lease}"
    unfinished.write_bytes(png(width, lines))
    unfinished.replace(FOLDER / f"{ctx.task.id}.png")
    drawn = {"id": ctx.task.id, "title": title, "picture": f"/pictures/{ctx.task.id}"}
    ctx.messenger.send_to_workers("drawn", drawn, kind="site")
    return drawn


def line(y: float, width: int, depth: int) -> bytes:
    """One line of grey pixels."""
    return bytes(255 - 255 * steps(complex(3 * x / width - 2.2, y), depth) // depth for x in range(width))


def steps(c: complex, depth: int) -> int:
    """How long z² + c stays small."""
    z = 0j
    for step in range(depth):
        if abs(z) > 2:
            return step
        z = z * z + c
    return depth


def png(width: int, lines: list[bytes]) -> bytes:
    """A PNG file of 8-bit grey lines."""
    header = struct.pack(">2I5B", width, len(lines), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
