"""What a transcode by the video worker costs, beside plain ffmpeg with the same settings of the encoder.

    python -m bench.video --rounds 5 --height 480 --source film.mov

In turns, each in a process of its own; counted is the processor time of that and of all that it started. The worker's
is that of its handler from the start of Python: imports and a look at what this ffmpeg can (in a node once for each
worker process), launchers, probing and reading the source, the encoder, probing and decoding the output, its hash; not
the queue. Plain ffmpeg gets the arguments that the handler gave to its encoder, as a run before the rounds recorded
them, without guards of the input and reports of progress.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.machine import this_machine
from bench.markdown_table import aligned

LEFT_OUT: Final = {f"-{name}_whitelist" for name in ("protocol", "format", "codec")} | {
    *("-max_streams", "-max_pixels", "-progress", "-stats_period")
}  # each with a value
HANDLER: Final = """\
import asyncio, json, sys, time
from types import SimpleNamespace
from peerd.workers.video.jobs import transcode
class Context:
    options, task = {"directory": sys.argv[1], "nice": 0}, SimpleNamespace(id=1, lease=1)
    async def progress(self, fraction, note=None): ...
imported = time.process_time()
asyncio.run(transcode(Context(), sys.argv[2], "peerd.mp4", int(sys.argv[3]), replace=True))
print(json.dumps({"Python and imports": imported, "the handler itself, with the hash": time.process_time() - imported}))
"""
RECORDER: Final = """\
#!{python} -IS
import json, os, sys
_, status, used = os.wait4(os.spawnv(os.P_NOWAIT, {program!r}, [{program!r}, *sys.argv[1:]]), 0)
with open({record!r}, "a") as record:
    record.write(json.dumps([{program!r}, *sys.argv[1:], used.ru_utime + used.ru_stime]) + "\\n")
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""
Cost = tuple[float, float, bytes]  # seconds of processor time and of the clock, and what was printed


def main() -> None:
    """Measure what the arguments say, and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.video", description="What a transcode costs.")
    parser.add_argument("--source", type=Path, help="a video; else one is made, 1080p25, noisy, 6.5 Mbit/s, with sound")
    parser.add_argument("--seconds", type=int, default=60, help="of the source that is made")
    parser.add_argument("--height", type=int, default=720, help="of the output")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    costs: dict[str, list[Cost]] = {"peerd": [], "ffmpeg": []}
    with tempfile.TemporaryDirectory() as folder:
        source = str(shutil.copy(chosen.source, folder)) if chosen.source else make_source(folder, chosen.seconds)
        ours = [sys.executable, "-c", HANDLER, folder, Path(source).name, str(chosen.height)]
        recorded = record(ours, media := Path(folder))
        plain = plain_command(next(words for words in recorded if kind_of(words) == "the encoder"), source, media)
        for number in range(chosen.rounds):
            for name, command in [("peerd", ours), ("ffmpeg", plain)][:: 1 if number % 2 else -1]:
                costs[name].append(run(command))
        same = (media / "peerd.mp4").read_bytes() == (media / "ffmpeg.mp4").read_bytes()
    print(f"{chosen.rounds} rounds, on {this_machine()}; the outputs are {'' if same else 'NOT '}the same\n")
    print(*aligned(comparison(costs)), "", *aligned(breakdown(recorded, costs)), sep="\n")


def make_source(folder: str, seconds: int) -> str:
    """A test picture with noise, which an encoder finds as hard as a film, and a tone."""
    picture = f"testsrc2=size=1920x1080:rate=25:duration={seconds},noise=alls=4:allf=t,format=yuv420p"
    inputs = ("-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", f"sine=sample_rate=48000:duration={seconds}")
    codecs = ("-c:v", "libx264", "-preset", "veryfast", "-b:v", "6500k", "-c:a", "aac")
    run(["ffmpeg", "-nostdin", "-v", "error", *inputs, *codecs, f"{folder}/made.mp4"])
    return f"{folder}/made.mp4"


def run(command: Sequence[str], **options: Any) -> Cost:
    """Run a program to its end; its cost is its own and that of all it has waited for."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as process:
        output = process.stdout.read() if process.stdout else b""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime, time.monotonic() - began, output


def record(command: Sequence[str], media: Path) -> list[list[Any]]:
    """Run it with programs that write down the name of the real one, their arguments, and its processor time."""
    tools, written = media / "tools", media / "written"
    tools.mkdir()
    for name in ("ffmpeg", "ffprobe"):
        real = shutil.which(name) or sys.exit(f"{name} is not on the PATH")
        (tools / name).write_text(RECORDER.format(python=sys.executable, program=real, record=str(written)))
        (tools / name).chmod(0o755)
    run(command, env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
    return [json.loads(line) for line in written.read_text().splitlines()]


def kind_of(words: Sequence[Any]) -> str:
    """What a recorded program did."""
    if "-i" not in words:
        return "what this ffmpeg can"
    if words[0].endswith("ffmpeg"):
        return "the encoder" if "-c:v" in words else "decoding the output"
    return "reading the packets" if any("packet=" in str(word) for word in words) else "probing"


def plain_command(words: list[Any], source: str, media: Path) -> list[str]:
    """The encoder as one would call it by hand; ``words`` are as they were recorded."""
    given = [word for before, word in zip(["", *words], words[:-2], strict=False) if not {before, word} & LEFT_OUT]
    given[given.index("-i") + 1] = source
    return [*given, str(media / "ffmpeg.mp4")]


def comparison(costs: Mapping[str, Sequence[Cost]]) -> list[Sequence[str]]:
    """The medians of both, and their ratio; that within a round, too, since other work touches both alike there."""
    rows: list[Sequence[str]] = [("", "peerd", "plain ffmpeg", "ratio of medians", "median of ratios")]
    for place, name in enumerate(("processor, s", "clock, s")):
        ours, plain = ([float(cost[place]) for cost in costs[by]] for by in ("peerd", "ffmpeg"))
        seconds = [f"{median(each):.2f} ({min(each):.2f}–{max(each):.2f})" for each in (ours, plain)]
        ratios = (median(ours) / median(plain), median(a / b for a, b in zip(ours, plain, strict=True)))
        rows.append((name, *seconds, *(f"{ratio:.3f}" for ratio in ratios)))
    return rows


def breakdown(recorded: Sequence[Sequence[Any]], costs: Mapping[str, Sequence[Cost]]) -> list[Sequence[str]]:
    """Where the worker's time goes: programs as the recorded run has them, the encoder as plain ffmpeg has it."""
    ours, plain = (median(processor for processor, *_ in costs[by]) for by in ("peerd", "ffmpeg"))
    own = [json.loads(output) for _, _, output in costs["peerd"]]
    parts: dict[str, float] = {"the encoder": plain, **{name: median(each[name] for each in own) for name in own[0]}}
    for words in recorded:
        if (kind := kind_of(words)) != "the encoder":
            parts[kind] = parts.get(kind, 0.0) + words[-1]
    parts["launchers, reports of progress, and what differs between runs"] = ours - sum(parts.values())
    head = ("of peerd's processor time", "s", "of plain ffmpeg")
    return [head, *((name, f"{seconds:.2f}", f"{seconds / plain:.3f}") for name, seconds in parts.items())]


if __name__ == "__main__":
    main()
