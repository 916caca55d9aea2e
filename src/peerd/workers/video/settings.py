"""Reads ``[workers.video.options]`` into frozen settings, with every error at once."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from peerd import parse_duration, parse_size
from peerd.workers.video.errors import Misconfigured

Seconds = Annotated[float, Meta(gt=0, extra={"from text": parse_duration})]
"""'90s', '2h', or a number."""
Bytes = Annotated[int, Meta(gt=0, extra={"from text": parse_size})]
"""'4GiB', '500MB', or a number."""


class VideoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the worker.

    ``directory`` is the media root: sources and outputs lie below it. ``scratch`` holds the private folder of each
    running task; it must be on the file system of the outputs, and is ``.peerd-video`` in ``directory`` by default.
    ``codecs`` are accepted beside those of `peerd.workers.video.formats`.
    """

    directory: Path
    scratch: Path | None = None
    threads: Annotated[int, Meta(ge=0, le=64)] = 0
    nice: Annotated[int, Meta(ge=0, le=19)] = 10
    max_source: Bytes = 256 * 2**30
    max_output: Bytes = 64 * 2**30
    max_memory: Bytes = 8 * 2**30
    max_probe_memory: Bytes = 2**30
    max_packets: Annotated[int, Meta(gt=0)] = 20_000_000
    max_pixels: Annotated[int, Meta(gt=0)] = 8192 * 4320
    max_duration: Seconds = 12 * 3600.0
    max_wall: Seconds = 24 * 3600.0
    stall: Seconds = 120.0
    probe_timeout: Seconds = 60.0
    max_errors: Annotated[int, Meta(ge=0)] = 10
    codecs: tuple[str, ...] = ()

    @property
    def private(self) -> Path:
        """The folder of the private folders of running tasks."""
        return self.scratch if self.scratch is not None else self.directory / ".peerd-video"

    @property
    def max_cpu(self) -> int:
        """CPU seconds of one ffmpeg: all cores for the whole of ``max_wall``."""
        return int(self.max_wall * (os.cpu_count() or 1)) + 1


def read_settings(options: Mapping[str, object]) -> VideoSettings:
    """Check the worker's options.

    >>> read_settings({"directory": "/", "stall": "2m"}).stall
    120.0

    Raises Misconfigured, which names every wrong option.
    """
    kinds = get_type_hints(VideoSettings, include_extras=True)
    read: dict[str, Any] = {}
    reasons = [] if "directory" in options else ["directory: it is missing"]
    for name, value in options.items():
        if name not in kinds:
            reasons.append(f"{name}: there is no such option, only {', '.join(kinds)}")
            continue
        try:
            read[name] = _read(kinds[name], value)
        except ValueError as error:  # msgspec's own among them
            reasons.append(f"{name}: {error}")
    if reasons:
        raise Misconfigured(reason="; ".join(reasons))
    settings = VideoSettings(**read)
    if not settings.directory.is_dir():
        raise Misconfigured(reason=f"directory {settings.directory} is not a directory on this node")
    return msgspec.structs.replace(
        settings,
        directory=settings.directory.resolve(),
        # Not resolved: a link could belong to another user, and is refused.
        scratch=settings.scratch.absolute() if settings.scratch else None,
    )


def _read(kind: Any, value: object) -> object:
    for hint in getattr(kind, "__metadata__", ()):
        if isinstance(value, str) and hint.extra is not None:
            value = hint.extra["from text"](value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"Expected a finite number, got {value}")
    return msgspec.convert(value, kind, strict=False, dec_hook=lambda as_what, given: as_what(given))
