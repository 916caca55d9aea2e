"""What an attacker brings: another user's hands in the media directory, programs that act at the chosen moment."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.video.media_helpers import RecordingContext

NOBODY = 65534


def as_another_user(command: str, *arguments: object) -> None:
    """Run a shell command as a user that is not the worker's; as oneself without root, with the same effect."""
    whose = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(["sh", "-ec", command, "sh", *map(str, arguments)], check=True, timeout=20, **whose)  # type: ignore[call-overload]


class Interrupted(RecordingContext):
    """Calls a function once, when the task says a note for the first time: a moment inside of its work."""

    def __init__(self, directory: Path, at: str, attack: Callable[[], object], **options: Any) -> None:
        super().__init__(directory, **options)
        self._at = at
        self._attack: Callable[[], object] | None = attack

    async def progress(self, fraction: float, note: str | None = None) -> None:
        await super().progress(fraction, note)
        if self._attack is not None and self._at in (note or ""):
            attack, self._attack = self._attack, None
            attack()


def wrapped_tools(folder: Path, before: str) -> Path:
    """Real ffmpeg and ffprobe behind scripts that first run ``before``, but not when they are asked what they can.

    Returns the folder for the PATH.
    """
    folder.mkdir()
    for name in ("ffmpeg", "ffprobe"):
        real = shutil.which(name)
        assert real is not None
        script = folder / name
        asked = "-version|-filters|-codecs|-decoders"
        script.write_text(
            f'#!/bin/sh\nfor word; do case "$word" in {asked}) exec {real} "$@";; esac; done\n'
            f'{before}\nexec {shlex.quote(real)} "$@"\n'
        )
        script.chmod(0o755)
    return folder


def exchange_for_link(folder: Path, target: Path) -> str:
    """A shell command that moves a folder away and puts a link to another one in its place, once."""
    away, folder_, target_ = (shlex.quote(str(path)) for path in (f"{folder}.away", folder, target))
    return f"if [ ! -e {away} ]; then mv {folder_} {away}; ln -s {target_} {folder_}; fi"
