"""However an attempt ends, none of its programs stays, and no partial file becomes visible."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from peerd.runtime.os_processes import ResourceLimits
from peerd.testing import eventually, eventually_async
from peerd.workers.video.errors import DiskFull, Misconfigured, OutputExists, PublishFailed
from peerd.workers.video.files.descriptors import FileDescriptor, identity_of
from peerd.workers.video.files.paths import MediaDirectory
from peerd.workers.video.files.publish import PrivateFolder, publish
from peerd.workers.video.jobs import transcode
from peerd.workers.video.programs.ffmpeg import FfmpegJob, run_ffmpeg
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext, find_tools
from peerd.workers.video.programs.program import Program
from peerd.workers.video.settings import read_settings
from tests.video.media_helpers import RecordingContext, files_in, held_below, programs_of_this_process, work_in_progress

WORKER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.video.attacks import Interrupted
from peerd.workers.video.jobs import transcode
context = Interrupted(Path(sys.argv[1]), sys.argv[3], lambda: os.kill(os.getpid(), signal.SIGKILL))
asyncio.run(transcode(context, sys.argv[2], "out.mp4", quality="standard"))
"""


def start_worker(directory: Path, source: str, dies_at: str = "never") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WORKER, str(directory), source, dies_at]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def programs_that_name(text: str) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if one.pid != os.getpid() and any(text in each for each in one.info["cmdline"] or ())]


async def test_a_cancelled_task_leaves_nothing_but_the_former_output(minute: Path, directory: Path) -> None:
    former, context = directory / "out.mp4", RecordingContext(directory)
    former.write_bytes(b"the former output")
    running = asyncio.create_task(transcode(context, minute.name, "out.mp4", replace=True))
    await asyncio.wait_for(context.working.wait(), 30)
    assert programs_of_this_process()
    assert work_in_progress(directory)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert programs_of_this_process() == []
    assert files_in(directory) == [minute, former]
    assert held_below(directory) == []
    assert former.read_bytes() == b"the former output"


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_what_a_program_started_ends_with_it() -> None:
    script = "sleep 987 & sleep 988 & echo started; wait"
    async with Program(["sh", "-c", script], ResourceLimits(), doing="testing", source="x") as program:
        async for _ in program.lines(silence=20, within=20):
            break
        members = psutil.Process(program.pid).children()
        assert len(members) == 2
    await eventually_async(lambda: all(map(is_over, members)))


@pytest.mark.slow
def test_a_killed_worker_leaves_no_program_and_the_next_attempt_cleans_up(minute: Path, directory: Path) -> None:
    worker = start_worker(directory, minute.name)
    try:
        eventually(lambda: any(path.stat().st_size for path in directory.glob(".peerd-video/*/output.mp4")))
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    eventually(lambda: programs_that_name(str(directory)) == [])
    assert not (directory / "out.mp4").exists()
    assert [path.name.split(".")[0] for path in directory.glob(".peerd-video/*")] == ["task-7"]
    result = asyncio.run(transcode(RecordingContext(directory), minute.name, "out.mp4", height=144, quality="draft"))
    assert (directory / "out.mp4").stat().st_size == result["size"]
    assert work_in_progress(directory) == []


def test_a_worker_killed_after_publishing_leaves_what_the_next_attempt_calls_done(clip: Path, directory: Path) -> None:
    worker = start_worker(directory, clip.name, dies_at="320x180")  # it says the size at the end
    assert worker.wait() == -signal.SIGKILL
    made = identity_of((directory / "out.mp4").stat())
    with pytest.raises(OutputExists):
        asyncio.run(transcode(RecordingContext(directory), clip.name, "out.mp4"))
    result = asyncio.run(transcode(RecordingContext(directory, lease=2), clip.name, "out.mp4"))
    assert result["sha256"] == hashlib.sha256((directory / "out.mp4").read_bytes()).hexdigest()
    assert identity_of((directory / "out.mp4").stat()) == made
    with pytest.raises(OutputExists):
        asyncio.run(transcode(RecordingContext(directory, lease=2), clip.name, "out.mp4", quality="draft"))
    assert identity_of((directory / "out.mp4").stat()) == made
    assert work_in_progress(directory) == []


def test_a_folder_that_its_owner_left_is_removed_by_any_task(tmp_path: Path) -> None:
    for name in ("task-1.abc", "task-2.abc", "somebody-elses"):
        (tmp_path / name).mkdir()
        if name != "task-2.abc":
            os.utime(tmp_path / name, (1, 1))
    with PrivateFolder(tmp_path, 3) as living:
        os.utime(living.path, (1, 1))
        with PrivateFolder(tmp_path, 4):
            names = sorted(path.name.split(".")[0] for path in tmp_path.iterdir())
            assert names == ["somebody-elses", "task-2", "task-3", "task-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["somebody-elses", "task-2.abc"]


def test_an_attempt_that_was_overtaken_publishes_nothing(tmp_path: Path) -> None:
    place = MediaDirectory(tmp_path).resolve_output("out.mp4", "in.mp4", "-x.mp4")
    with place, PrivateFolder(tmp_path / "private", 5) as frozen, frozen.create("output.mp4") as made:
        os.write(made.fd, b"old")
        with PrivateFolder(tmp_path / "private", 5) as newer, newer.create("output.mp4") as unfinished:
            os.write(unfinished.fd, b"new, not complete")
            with pytest.raises(PublishFailed, match="newer attempt"):
                publish(made, place, replace=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["replaced", "linked", "renamed"])
def test_what_is_published_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    steps: list[tuple[str, str]] = []

    def link(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if how == "renamed":  # as on FAT
            raise PermissionError(errno.EPERM, "Operation not permitted")
        steps.append(("linked", target))
        make_link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def fsync(descriptor: int) -> None:
        steps.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))

    def replace(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append((how, target))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    rename, make_link = os.replace, os.link
    place = MediaDirectory(tmp_path).resolve_output("out.mp4", "in.mp4", "-x.mp4")
    with place, PrivateFolder(tmp_path / "private", 5) as private, private.create("output.mp4") as made:
        os.write(made.fd, b"film")
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(os, "link", link)
        publish(made, place, replace=how == "replaced")
        assert steps == [("fsync", made.name), (how, "out.mp4"), ("fsync", tmp_path.name)]
        with private.create("again.mp4") as again, pytest.raises(OutputExists):
            publish(again, place, replace=False)
    assert (tmp_path / "out.mp4").read_bytes() == b"film"


@pytest.mark.usefixtures("clip")
async def test_scratch_on_another_file_system_is_a_wrong_option(directory: Path) -> None:
    scratch = Path("/dev/shm") / f"peerd-test-{os.getpid()}"
    if os.stat(scratch.parent).st_dev == os.stat(directory).st_dev:  # noqa: PTH116 - async, and it does not matter
        pytest.skip("this machine has one file system only")
    with pytest.raises(Misconfigured, match="file system"):
        await transcode(RecordingContext(directory, scratch=str(scratch)), "clip.mp4")
    assert not scratch.exists()


async def test_a_full_disk_is_no_fault_of_the_source(bunny: Path, directory: Path) -> None:
    arguments = ("-map", "0:v", "-c", "copy", "-f", "mpegts")
    context = ProgramContext(find_tools(), read_settings({"directory": str(directory)}), "bunny.mp4")
    with FileDescriptor.at(bunny) as file, FileDescriptor.at(Path("/dev/full")) as full:
        job = FfmpegJob("encoding", file, arguments, full, 5.0)
        with pytest.raises(DiskFull):
            await run_ffmpeg(context, job)
