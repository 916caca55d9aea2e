"""``[workers.video.options]`` → frozen settings, with every error at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from peerd import parse_duration, parse_size
from peerd.workers.video.errors import Misconfigured


def seconds(value: object) -> object:
    """Read '90s', '2h' or a number of seconds; what is neither, the validator refuses with the words of the error."""
    return parse_duration(value) if isinstance(value, str) else value


def size(value: object) -> object:
    """Read '4GiB', '500MB' or a number of bytes; what is neither, the validator refuses with the words of the error."""
    return parse_size(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0)]
Bytes = Annotated[int, BeforeValidator(size), Field(gt=0)]


class VideoSettings(BaseModel):
    """What the operator allows.

    ``directory`` is the media root: sources and outputs lie below it. ``scratch`` holds the private folder of each
    running task; it must be on the file system of the outputs, and is ``.peerd-video`` in ``directory`` by default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    directory: Path
    scratch: Path | None = None
    threads: int = Field(default=0, ge=0, le=64)
    nice: int = Field(default=10, ge=0, le=19)
    max_source: Bytes = 256 * 2**30
    max_output: Bytes = 64 * 2**30
    max_memory: Bytes = 8 * 2**30
    max_probe_memory: Bytes = 2**30
    max_packets: int = Field(default=20_000_000, gt=0)
    max_pixels: int = Field(default=8192 * 4320, gt=0)
    max_duration: Seconds = 12 * 3600.0
    max_wall: Seconds = 24 * 3600.0
    stall: Seconds = 120.0
    probe_timeout: Seconds = 60.0
    max_errors: int = Field(default=10, ge=0)

    @property
    def private(self) -> Path:
        """Where the private folders of running tasks lie."""
        return self.scratch if self.scratch is not None else self.directory / ".peerd-video"

    @property
    def max_cpu(self) -> int:
        """CPU seconds of one ffmpeg: all cores for the whole of ``max_wall``, the backstop behind the wall clock."""
        return int(self.max_wall * (os.cpu_count() or 1)) + 1


def read_settings(options: Mapping[str, object]) -> VideoSettings:
    """Check the worker's options.

    >>> read_settings({"directory": "/", "stall": "2m"}).stall
    120.0

    Raises Misconfigured, which names every wrong option.
    """
    try:
        settings = VideoSettings.model_validate(dict(options))
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Misconfigured(reason=reasons) from error
    if not settings.directory.is_dir():
        raise Misconfigured(reason=f"directory {settings.directory} is not a directory on this node")
    return settings.model_copy(
        update={
            "directory": settings.directory.resolve(),
            # Not resolved: a link in its place could be somebody else's, and is refused.
            "scratch": settings.scratch.absolute() if settings.scratch else None,
        }
    )
