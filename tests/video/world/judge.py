"""Look at an output as a viewer does, by its decoded pictures and sound, and say what differs from a row."""

from __future__ import annotations

import json
import shutil
import subprocess
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, zip_longest
from math import cos, hypot, pi, sin
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any

from tests.video.media_helpers import output_of
from tests.video.world.film import BARS, TONES, bits_of
from tests.video.world.row import Row

FFMPEG, FFPROBE = str(shutil.which("ffmpeg")), str(shutil.which("ffprobe"))
_RATE, _WINDOW = 8000, 400
_MATRICES = {"bt709": "bt709", "smpte170m": "bt601", "bt470bg": "bt601", "bt2020nc": "bt2020"}
_SHOWN = "stream=index,codec_type,width,height,pix_fmt,color_space,color_transfer,color_primaries,color_range,channels"


class Picture:
    """A decoded picture, and the part of it that is the film."""

    def __init__(self, data: bytes, width: int, height: int) -> None:
        self.data, self.width, self.height = data, width, height
        self.box = (0, 0, width, height)

    def find_film(self) -> None:
        """Leave out black bars; the film itself reaches its four edges with something light."""
        pitch = 3 * self.width
        rows = [y for y in range(self.height) if max(self.data[y * pitch : (y + 1) * pitch]) > 90]
        columns = [x for x in range(self.width) if max(max(self.data[3 * x + c :: pitch]) for c in range(3)) > 90]
        if rows and columns:
            self.box = columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]

    def pixel(self, x: int, y: int) -> tuple[int, int, int]:
        place = 3 * (y * self.width + x)
        return self.data[place], self.data[place + 1], self.data[place + 2]

    def at(self, x: float, y: float) -> tuple[int, int, int]:
        """The colour at a place of the film, from 0 to 1."""
        left, top, width, height = self.box
        return self.pixel(left + int(x * width), top + int(y * height))

    def number_and_mark(self) -> tuple[int, str] | None:
        """None when the film's bits are not there: another picture, a turned, a stretched, a grey one."""
        levels = [sum(self.at((cell + 0.5) / 16, 1 / 9)) // 3 for cell in range(16)]
        low, high = min(levels), max(levels)
        bits = [level > (low + high) // 2 for level in levels]
        value = sum(bit << place for place, bit in enumerate(bits))
        number, mark = value & 1023, chr(ord("A") + (value >> 10 & 7))
        return (number, mark) if high - low > 90 and bits == bits_of(number, mark) else None

    def bars(self) -> list[tuple[int, int, int]]:
        return [self.at((place + 0.5) / 8, 7.5 / 9) for place in range(8)]

    def square(self) -> tuple[int, int]:
        """Width and height of the square in the middle."""
        left, top, width, height = self.box
        x, y = left + width // 2, top + height * 4 // 9
        sides = []
        for step_x, step_y in ((1, 0), (0, 1)):
            ways = [self._reach(x, y, step_x * way, step_y * way) for way in (1, -1)]
            sides.append(sum(ways) - 1)
        return sides[0], sides[1]

    def _reach(self, x: int, y: int, step_x: int, step_y: int) -> int:
        count = 0
        while 0 <= x < self.width and 0 <= y < self.height and self.pixel(x, y)[1] > 127:
            x, y, count = x + step_x, y + step_y, count + 1
        return count

    def is_combed(self) -> bool:
        """Whether the moving edge differs between the odd and the even lines."""
        left, top, _, height = self.box
        edges = [self._reach(left, y, 1, 0) for y in range(top + height * 3 // 9, top + height * 5 // 9)]
        differences = [abs(a - b) for a, b in pairwise(edges)]
        return median(differences) >= 2


@dataclass
class Seen:
    """What was seen of an output."""

    size: str = ""
    tags: tuple[str, ...] = ()
    times: list[float] = field(default_factory=list)
    lasts: float = 0.0
    numbers: list[int | None] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    bars: list[list[tuple[int, int, int]]] = field(default_factory=list)
    squares: list[tuple[int, int]] = field(default_factory=list)
    combed: int = 0
    empty: int = 0
    sound: str = ""
    span: tuple[float, float] = (0.0, 0.0)
    gaps: float = 0.0


def look_at(path: Path, row: Row, scratch: Path) -> Seen:
    """Decode an output and read it; colours as its tags say, or as players guess without them; JPEG as JFIF."""
    shown = ("-show_entries", f"{_SHOWN}:format=duration:packet=stream_index,pts_time,flags", "-of", "json", path)
    answer = json.loads(output_of(FFPROBE, "-v", "error", *shown))
    stream = next(each for each in answer["streams"] if each["codec_type"] == "video")
    sounds = [each for each in answer["streams"] if each["codec_type"] == "audio"]
    seen = Seen(size=f"{stream['width']}x{stream['height']}", lasts=float(answer["format"].get("duration", 0)))
    seen.tags = tuple(stream.get(f"color_{tag}", "none") for tag in ("space", "transfer", "primaries", "range"))
    packets = [each for each in answer["packets"] if each["stream_index"] == stream["index"]]
    seen.times = sorted(float(each["pts_time"]) for each in packets if "pts_time" in each and "D" not in each["flags"])
    for place, picture in enumerate(_pictures(path, stream, scratch, has_sound=bool(sounds))):
        if row.padded:
            picture.find_film()
        _read(seen, picture, place, judged=row.numbers is not None)
    if sounds:
        _listen(seen, scratch / "sound.raw", sounds[0]["channels"])
    return seen


def _pictures(path: Path, stream: dict[str, Any], scratch: Path, *, has_sound: bool) -> Iterator[Picture]:
    guessed = "bt709" if stream["height"] >= 720 else "bt601"
    matrix = "bt601" if path.suffix == ".jpg" else _MATRICES.get(stream.get("color_space", ""), guessed)
    reach = "pc" if path.suffix == ".jpg" or stream.get("color_range") == "pc" else "tv"
    filters = f"scale=in_color_matrix={matrix}:in_range={reach}:flags=accurate_rnd+full_chroma_int,format=rgb24"
    out: list[object] = ["-map", "0:v:0", "-vf", filters, "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"]
    if has_sound:
        resampled = ("-af", "aresample=async=1:first_pts=0", "-ar", _RATE, "-f", "s16le", scratch / "sound.raw")
        out += ["-map", "0:a:0", *resampled]
    command = [str(each) for each in (FFMPEG, "-nostdin", "-y", "-v", "error", "-i", path, *out)]
    size = stream["width"] * stream["height"] * 3
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        while len(data := program.stdout.read(size)) == size:
            yield Picture(data, stream["width"], stream["height"])


def _read(seen: Seen, picture: Picture, place: int, *, judged: bool) -> None:
    seen.empty += len(picture.data) > 900 and len(set(picture.data[:: len(picture.data) // 900])) < 4
    if not judged:
        seen.numbers.append(None)
        return
    read = picture.number_and_mark()
    seen.numbers.append(read[0] if read else None)
    seen.marks[read[1] if read else "none"] += 1
    seen.combed += picture.is_combed()
    if place % 12 == 0:
        seen.bars.append(picture.bars())
        seen.squares.append(picture.square())


@cache
def _wave(tone: int) -> tuple[list[float], list[float]]:
    angles = [2 * pi * tone * at / _RATE for at in range(_WINDOW)]
    return [cos(angle) for angle in angles], [sin(angle) for angle in angles]


def _tones_in(samples: array[int]) -> str:
    """The tones that are heard (Goertzel's sums), as '440+880'; '0' for silence."""
    loud = {tone: hypot(*(sum(map(mul, samples, wave)) for wave in _wave(tone))) * 2 / _WINDOW for tone in TONES}
    limit = max(150.0, max(loud.values()) * 0.35)
    return "+".join(str(tone) for tone, level in loud.items() if level > limit) or "0"


def _listen(seen: Seen, path: Path, channels: int) -> None:
    samples = array("h", path.read_bytes()[: path.stat().st_size // (2 * channels) * 2 * channels])
    heard = []
    for channel in range(channels):
        own = samples[channel::channels]
        windows = [_tones_in(own[at : at + _WINDOW]) for at in range(0, len(own) - _WINDOW + 1, _WINDOW)]
        loud = [place for place, tones in enumerate(windows) if tones != "0"]
        usual = Counter(windows[place] for place in loud).most_common(1)
        heard.append(usual[0][0] if usual else "0")
        if loud and (not seen.gaps or channel == 0):
            seen.span = (loud[0] * _WINDOW / _RATE, (loud[-1] + 1) * _WINDOW / _RATE)
            seen.gaps = (loud[-1] + 1 - loud[0] - len(loud)) * _WINDOW / _RATE
    seen.sound = "|".join(heard)


Check = tuple[str, object, object, bool]
"""What, expected, found, whether that is right."""


def differences(row: Row, seen: Seen, result: Mapping[str, Any]) -> list[str]:
    """What differs from the row; an empty list when all is right."""
    matrix, transfer, primaries, reach = seen.tags
    is_tagged = (matrix, transfer, reach) == ("bt709", "bt709", "tv") and primaries in {"bt709", "smpte170m", "bt470bg"}
    facts = {name: result.get(name) for name in ("left_out", "missing", "damage")}
    checks: list[Check] = [
        ("size", row.size, seen.size, seen.size == row.size),
        ("tags", "BT.709", seen.tags, is_tagged or not row.tags),
        ("pictures of one colour", 0, seen.empty, seen.empty <= len(seen.numbers) // 2),
        ("result", row.result, facts, not row.result or _is_true(row.result, facts)),
        *(_of_poster(row, seen, result) if row.call == "poster" else _of_film(row, seen)),
        *(_of_pictures(row, seen) if row.numbers is not None else ()),
    ]
    return [f"{what} {expected} expected, {found} found" for what, expected, found, is_right in checks if not is_right]


def _is_true(expression: str, facts: Mapping[str, Any]) -> bool:
    return bool(eval(expression, {"len": len}, {**facts, "left_out": facts["left_out"] or ()}))


def _of_poster(row: Row, seen: Seen, result: Mapping[str, Any]) -> Iterator[Check]:
    least, most = row.least_and_most
    number = seen.numbers[0]
    yield "picture", (least, most), number, row.numbers is None or (number is not None and least <= number <= most)
    shown = least / row.rate if row.shown is None else row.shown
    yield "at", shown, result["at"], least < most or abs(result["at"] - shown) < 0.021


def _of_film(row: Row, seen: Seen) -> Iterator[Check]:
    least, most = row.least_and_most
    count = len(seen.numbers)
    yield "pictures", (least, most), (count, len(seen.times)), least <= count <= most and len(seen.times) == count
    times = [row.begins + place / row.rate for place in range(count)] if row.times == () else row.times or []
    # A tenth of a second between picture and sound is the container's; between pictures nothing is.
    moved = seen.times[0] - times[0] if times and seen.times and abs(seen.times[0] - times[0]) < 0.09 else 0.0
    late = next(((a, b) for a, b in zip(times, seen.times, strict=False) if abs(a + moved - b) > 0.012), (0, 0))
    yield "time", *late, late == (0, 0)
    begin, end = row.span or seen.span
    lasts = max(row.begins + most / row.rate, end if row.sound else 0) if row.lasts is None else row.lasts
    yield "length", lasts, seen.lasts, lasts < 0 or abs(seen.lasts - lasts) < 0.15
    yield "sound", row.sound, seen.sound, row.sound in {seen.sound, "any"}
    is_there = abs(seen.span[0] - begin) < 0.13 and abs(seen.span[1] - end) < 0.13
    yield "sound of", row.span, seen.span, not seen.sound or is_there


def _of_pictures(row: Row, seen: Seen) -> Iterator[Check]:
    if row.call != "poster":
        first = (seen.numbers[0] or 0) if isinstance(row.frames, tuple) else 0
        wanted = row.numbers or range(first, first + (row.frames if isinstance(row.frames, int) else len(seen.numbers)))
        wrong_pair = next((pair for pair in zip_longest(wanted, seen.numbers) if pair[0] != pair[1]), (0, 0))
        yield "picture", *wrong_pair, wrong_pair == (0, 0)
    yield "film", row.mark, dict(seen.marks), set(seen.marks) == {row.mark}
    yield "combed pictures", 0, seen.combed, seen.combed <= max(1, len(seen.numbers) // 5)
    wrong = next((each for each in seen.squares if abs(each[0] - each[1]) > max(2.5, max(each) * 0.08)), None)
    yield "square", "a", wrong, wrong is None
    yield from _of_colours(row, seen)


def _of_colours(row: Row, seen: Seen) -> Iterator[Check]:
    for bars in seen.bars:
        if row.colours == "right":
            far, colour, bar = max(
                (max(abs(a - b) for a, b in zip(bar, colour, strict=True)), colour, bar)
                for colour, bar in zip(BARS, bars, strict=True)
            )
            yield "colour", colour, bar, far <= row.tolerance
        if row.colours == "mapped":  # red stays the reddest, grey is grey, white the lightest, black black
            red, green, blue, white, grey, _, black, _ = bars
            order = [max(range(3), key=bar.__getitem__) for bar in (red, green, blue)]
            neutral = max(max(bar) - min(bar) for bar in (white, grey, black))
            is_right = order == [0, 1, 2] and neutral <= 24 and sum(black) + 60 < sum(grey) < sum(white) - 60
            yield "colours", "mapped", bars, is_right
