"""Make the file of a row, run the worker on it, and say how it went."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peerd.workers.video import jobs
from peerd.workers.video.errors import MediaRefused, VideoError
from tests.video.media_helpers import RecordingContext
from tests.video.world import film, surgery
from tests.video.world.judge import FFMPEG, differences, look_at
from tests.video.world.row import Row

_FILM = re.compile(r"\{([A-H])(?::(\d+)x(\d+))?(?:@([\d./]+))?(?:\*([\d.]+))?(?:%(\d))?\}")
_SOUND = re.compile(r"\{~([\d|+]+)(?:\*([\d.]+))?(?:=(.+))?\}")
_TEST = re.compile(r"\{t(?::(\d+x\d+))?(?:@([\d.]+))?(?:\*([\d.]+))?\}")
_COMMANDS = {
    name: command for name, command in vars(surgery).items() if getattr(command, "__module__", "") == surgery.__name__
}
_WIDE = "zscale=tin=709:min=gbr:pin=709:rin=full:p=2020:m=2020_ncl"
_UNSAID = "setparams=color_primaries=unknown:color_trc=unknown:colorspace=unknown:range=tv"
_SHORT = (  # macros that are text, those that contain others first
    (r"all2020", "colour_primaries=9:matrix_coefficients=9"),
    (r"thumb", "{B*.04} {A} {12} -c:v:0 mjpeg -c:v:1"),
    (r"late", "{A} {~440*17} {12} -vf setpts=PTS+15/TB -fps_mode passthrough {x} -c:a aac a.mkv"),
    (r"ambisonic", "{A} '{~440|0|0|0=ambisonic 1}' {12} {x} -c:a libopus -mapping_family 2 a.mp4"),
    (r"av", "{A} {~440} {x} -c:a aac"),
    (r"slide", "{at eq(N,1)*.03+eq(N,2)*2+eq(N,3)*9+eq(N,4)*21}"),
    (r"at (\S+)", r"""-vf "settb=1/1000,setpts='(\1)/TB'" -fps_mode passthrough -enc_time_base:v 1/1000"""),
    (r"wide (\S+) (\S+)", rf"-vf format=gbrp,{_WIDE}:t=\1:r=\2,{_UNSAID}"),
    (r"tags (\S+)", r"-colorspace \1 -color_primaries \1 -color_trc \1"),
    (r"fields (\S+)", r"-vf interlace=scan=\1:lowpass=0"),
    (r"as (\d+)([^{}]*)", r"-bsf:v h264_metadata=transfer_characteristics=\1\2"),
    (r"709", "-vf scale=out_color_matrix=bt709:out_range=tv"),
    (r"x", "-c:v libx264 -preset veryfast -pix_fmt yuv420p"),
    (r"10", "-c:v libx264 -preset veryfast -pix_fmt yuv420p10le"),
    (r"x265", "-c:v libx265 -preset superfast -x265-params log-level=0"),
    (r"mpeg2", "-c:v mpeg2video -b:v 2M"),
    (r"vp8", "-c:v libvpx -b:v 1M -deadline realtime -c:a libopus"),
    (r"123", "-map 0 -map 1 -map 2"),
    (r"12", "-map 0 -map 1"),
)


@dataclass(frozen=True)
class Outcome:
    """How a row went: `outcome` is 'done' or an error, `judgement` empty when that is right."""

    name: str
    outcome: str
    judgement: str
    seconds: float


def make(row: Row, folder: Path, raw: Path) -> str:
    """Run the steps of a row in a folder, and return the name of the source."""
    words, steps = [""], row.steps
    for short, text in _SHORT:
        steps = re.sub(rf"\{{{short}\}}", text, steps)
    for step in steps.split(" && "):
        words = shlex.split(step)
        if words[0] in _COMMANDS:
            _COMMANDS[words[0]](folder, *words[1:])
            continue
        words[-1:] = ["-strict", "-2", words[-1]]
        command = [FFMPEG, "-nostdin", "-y", "-v", "error", *(part for word in words for part in _expand(word, raw))]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=100)
    made = words[-1] if words[0] not in _COMMANDS else words[1]
    if row.named:
        (folder / made).rename(folder / row.named)
    return row.named or row.source or made


def _expand(word: str, raw: Path) -> list[str]:
    path = raw / hashlib.sha256(word.encode()).hexdigest()[:20]
    if match := _FILM.fullmatch(word):
        mark, width, height, rate, seconds, images = match.groups()
        size, fps = (int(width or 160), int(height or 96)), rate or "25"
        frames = max(1, round(float(seconds or 2) * float(fps)))
        film.write_film(path, mark, size, frames, int(images or 1))
        shape = f"-f rawvideo -pix_fmt rgb24 -s {size[0]}x{size[1]} -r {fps} -i"
        return [*shape.split(), str(path)]
    if match := _SOUND.fullmatch(word):
        channels = [[int(tone) for tone in each.split("+") if tone != "0"] for each in match[1].split("|")]
        film.write_sound(path, channels, float(match[2] or 2))
        layout = ["-ch_layout", match[3]] if match[3] not in {None, "?"} else ["-ac", str(len(channels))]
        guess = ["-guess_layout_max", "0"] if match[3] == "?" else []
        return ["-f", "s16le", "-ar", "48000", *layout, *guess, "-i", str(path)]
    if match := _TEST.fullmatch(word):
        return ["-f", "lavfi", "-i", f"testsrc2=s={match[1] or '160x96'}:r={match[2] or 25}:d={float(match[3] or 2)}"]
    return [word]


async def run_row(row: Row, folder: Path) -> Outcome:
    """Make a row's source, run its handler and judge the output; the files of a wrong one stay.

    It raises nothing: a row that cannot be made or judged is a wrong one, and the others go on.
    """
    began = time.monotonic()
    media, raw = folder / "media", folder / "raw"
    media.mkdir(parents=True)
    raw.mkdir()
    try:
        source = await asyncio.to_thread(make, row, media, raw)
        outcome, judgement = await _ask(row, source, media, raw)
    except Exception as error:  # noqa: BLE001 - see above
        detail = getattr(error, "stderr", None) or b""
        outcome, judgement = "not judged", detail.decode(errors="replace")[-300:] or f"{error!r}"
    shutil.rmtree(raw if judgement else folder)
    return Outcome(row.name, outcome, judgement, time.monotonic() - began)


async def _ask(row: Row, source: str, media: Path, raw: Path) -> tuple[str, str]:
    context, handler, outcome = RecordingContext(media, threads=1), getattr(jobs, row.call), "done"
    before: dict[str, str] = {}
    try:
        if row.first:
            await handler(context, row.first, **row.args)
        before = _digests(media)
        result = await asyncio.wait_for(handler(context, source, **row.args), 100)
        found = [f"{row.error} expected, done found"] if row.error else []
    except Exception as error:  # noqa: BLE001 - it is the outcome
        result, found = {}, [_judge_error(row, error, source)]
        outcome = f"{type(error).__name__}{'' if isinstance(error, MediaRefused) else ' (retried)'}: {error}"
    if result and not row.error:
        seen = await asyncio.to_thread(look_at, media / result["output"], row, raw)
        found += differences(row, seen, result)
    after = _digests(media)
    changed = [name for name, digest in before.items() if after.get(name) != digest and name != row.replaces]
    return outcome, "; ".join(filter(None, [*(f"{name} was overwritten" for name in changed), *found]))


def _judge_error(row: Row, error: Exception, source: str) -> str:
    text = f"{type(error).__name__}: {error}".replace(source, "")
    if not row.error:
        return "done expected"
    if not isinstance(error, VideoError) or not re.fullmatch(row.error, type(error).__name__):
        return f"{row.error} expected"
    if isinstance(error, MediaRefused) != row.final:
        return f"{'a final' if row.final else 'a passing'} error expected"
    return "" if re.search(row.words, text, re.IGNORECASE) else f"an error that says {row.words!r} expected"


def _digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextlib.contextmanager
def only_the_wheel() -> Iterator[None]:
    """Hide the ffmpeg of the system from the worker."""
    path = os.environ["PATH"]
    os.environ["PATH"] = "/nowhere"
    try:
        yield
    finally:
        os.environ["PATH"] = path


async def run_rows(rows: Sequence[Row], folder: Path, *, at_once: int = 2) -> list[Outcome]:
    turn = asyncio.Semaphore(at_once)

    async def run(place: int, row: Row) -> Outcome:
        async with turn:
            return await run_row(row, folder / str(place))

    return list(await asyncio.gather(*(run(place, row) for place, row in enumerate(rows))))
