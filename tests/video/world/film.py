"""Films whose pictures and sounds say what they are: a number, a mark, bars of known colours, a square, tones.

A picture has 16 × 9 cells. The top two rows of cells are sixteen bits, black or white: ten of the number, three
of the film's mark (A to H), and 1, 0, 1, which stand there only if the picture is upright and whole. In the middle are
an edge that moves (combed pictures show it as a comb) and a square. The lowest three rows are eight bars.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path

BARS = (
    (255, 0, 0),
    (0, 255, 0),
    (0, 0, 255),
    (255, 255, 255),
    (128, 128, 128),
    (200, 100, 60),
    (0, 0, 0),
    (0, 200, 200),
)
TONES = (440, 880, 1320, 1760)
SOUND_RATE = 48000
_PERIOD = SOUND_RATE // 40  # all tones are multiples of 40 Hz
_WHITE, _BLACK = b"\xff\xff\xff", b"\0\0\0"


def _cells(width: int, colours: list[bytes]) -> bytes:
    ends = [width * place // len(colours) for place in range(len(colours) + 1)]
    return b"".join(colour * (end - begin) for colour, begin, end in zip(colours, ends, ends[1:], strict=False))


def bits_of(number: int, mark: str) -> list[bool]:
    value = number & 1023 | (ord(mark) - ord("A")) << 10 | 0b101 << 13
    return [bool(value >> place & 1) for place in range(16)]


def draw(width: int, height: int, mark: str, number: int, step: int) -> bytes:
    """One picture, RGB; `step` moves the edge."""
    top = _cells(width, [_WHITE if bit else _BLACK for bit in bits_of(number, mark)])
    edge = step * max(2, width // 50) % max(1, width // 4)
    side = min(width, height) // 3
    plain = _WHITE * edge + _BLACK * (width - edge)
    left = width // 2 - side // 2
    marked = plain[: 3 * left] + _WHITE * side + _BLACK * (width - left - side)
    begin, end, middle = height * 2 // 9, height * 6 // 9, height * 4 // 9 - side // 2
    band = plain * (middle - begin) + marked * side + plain * (end - middle - side)
    return top * begin + band + _cells(width, [bytes(bar) for bar in BARS]) * (height - end)


def write_film(path: Path, mark: str, size: tuple[int, int], count: int, images_per_number: int = 1) -> None:
    """Raw RGB; a film of fields shows each number in two images."""
    with path.open("wb") as file:
        for image in range(count):
            file.write(draw(*size, mark, image // images_per_number, image))


def write_sound(path: Path, channels: list[list[int]], seconds: float) -> None:
    """Raw samples (s16le): the tones of each channel."""
    waves = [
        [round(sum(9000 * math.sin(2 * math.pi * tone * at / SOUND_RATE) for tone in tones)) for at in range(_PERIOD)]
        for tones in channels
    ]
    period = array("h", [wave[at] for at in range(_PERIOD) for wave in waves]).tobytes()
    path.write_bytes((period * (round(seconds * 40) + 1))[: round(seconds * SOUND_RATE) * 2 * len(channels)])
