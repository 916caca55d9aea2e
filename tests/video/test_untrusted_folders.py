"""Another user may write in the media directory, or inspect the processes of the worker."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerd.workers.video.errors import Misconfigured, OutputExists, PathRefused, PublishFailed, SourceChanged
from peerd.workers.video.jobs import poster, probe, transcode
from tests.video.attacks import NOBODY, Interrupted, as_another_user, exchange_for_link, wrapped_tools
from tests.video.media_helpers import RecordingContext, files_in, held_below, make_clip


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A media directory in which everybody may write; pytest's own folders are for one user."""
    with tempfile.TemporaryDirectory(prefix="peerd-test-") as folder:
        Path(folder).chmod(0o755)
        media = Path(folder) / "media"
        media.mkdir()
        media.chmod(0o777)
        yield media


async def test_a_work_folder_that_is_exchanged_during_the_work_does_no_harm(open_directory: Path) -> None:
    make_clip(open_directory / "clip.mp4", seconds=1)
    victim = open_directory.parent / "victim"
    victim.write_bytes(b"precious")
    victim.chmod(0o600)

    def exchange() -> None:
        (mine,) = (open_directory / ".peerd-video").iterdir()
        as_another_user(
            'cd "$1" && mv .peerd-video stolen && mkdir -m 777 -p ".peerd-video/$2"'
            ' && ln -s "$3" ".peerd-video/$2/output.mp4" && ln -s "$1/clip.mp4" ".peerd-video/$2/source"',
            open_directory, mine.name, victim,
        )  # fmt: skip

    result = await transcode(
        Interrupted(open_directory, "reading the source", exchange), "clip.mp4", "out.mp4", quality="draft"
    )
    made = (open_directory / "out.mp4").lstat()
    assert (stat.S_ISREG(made.st_mode), made.st_size) == (True, result["size"])
    assert files_in(open_directory / "stolen") == []
    assert victim.read_bytes() == b"precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
async def test_a_work_folder_of_another_user_is_refused_with_the_remedy(open_directory: Path) -> None:
    clip = make_clip(open_directory / "clip.mp4", seconds=1)
    as_another_user('mkdir -m 777 "$1"', open_directory / ".peerd-video")
    for handler in (transcode, poster):
        with pytest.raises(Misconfigured, match=rf"\.peerd-video is not used, .* user {NOBODY}, .*remove it"):
            await handler(RecordingContext(open_directory), "clip.mp4")
    assert files_in(open_directory) == [open_directory / ".peerd-video", clip]


@pytest.mark.usefixtures("clip")
async def test_a_work_folder_of_others_or_a_link_in_its_place_is_refused(directory: Path, tmp_path: Path) -> None:
    scratch, usual = directory / "scratch", directory / ".peerd-video"
    scratch.mkdir()
    usual.mkdir()
    for mode in (0o720, 0o702):
        scratch.chmod(mode)
        usual.chmod(mode)
        for context in (RecordingContext(directory), RecordingContext(directory, scratch=str(scratch))):
            with pytest.raises(Misconfigured, match="others may write"):
                await transcode(context, "clip.mp4", "out.mp4")
    assert not (directory / "out.mp4").exists()
    usual.rmdir()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "task-7.old").mkdir(parents=True)
    usual.symlink_to(elsewhere)
    with pytest.raises(Misconfigured, match="link"):
        await transcode(RecordingContext(directory), "clip.mp4", "out.mp4")
    assert files_in(elsewhere) == [elsewhere / "task-7.old"]


@pytest.mark.slow
@pytest.mark.usefixtures("clip")
@pytest.mark.parametrize("moment", ["encoded", "publishing"])
async def test_an_output_folder_that_is_exchanged_for_a_link_leads_nowhere(
    directory: Path, tmp_path: Path, moment: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def exchange() -> None:
        (directory / "out").rename(directory / "away")
        (directory / "out").symlink_to(outside)

    with pytest.raises(PublishFailed, match=r"out/a\.mp4 .* folder was moved or exchanged"):
        await transcode(Interrupted(directory, moment, exchange), "clip.mp4", "out/a.mp4", quality="draft")
    assert [*files_in(outside), *files_in(directory / "away"), *held_below(directory)] == []


@pytest.mark.usefixtures("clip")
async def test_a_file_that_appears_under_the_name_of_the_output_during_the_work_stays(directory: Path) -> None:
    out = directory / "out.mp4"
    attacks: list[tuple[int, str, Callable[[], object]]] = [
        (1, "encoded", lambda: out.write_bytes(b"an upload")),
        (2, "encoded", lambda: out.symlink_to("clip.mp4")),
        (2, "publishing", lambda: os.mkfifo(out)),
    ]
    for lease, moment, appear in attacks:
        with pytest.raises(OutputExists, match=r"'out\.mp4' exists already"):
            await transcode(Interrupted(directory, moment, appear, lease=lease), "clip.mp4", "out.mp4", quality="draft")
        assert out.lstat().st_size < 10
        out.unlink()


@pytest.mark.usefixtures("clip")
async def test_of_two_tasks_at_once_with_one_output_one_is_done(directory: Path) -> None:
    both = [transcode(RecordingContext(directory, task), "clip.mp4", "out.mp4", quality="draft") for task in (1, 2)]
    ends = await asyncio.gather(*both, return_exceptions=True)
    [refused] = [end for end in ends if isinstance(end, OutputExists)]
    [done] = [end for end in ends if end is not refused]
    assert isinstance(done, dict), done
    assert (directory / "out.mp4").stat().st_size == done["size"]


@pytest.mark.parametrize("exchanged", ["folder", "file"])
async def test_a_source_that_is_exchanged_after_its_check_is_not_read(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanged: str
) -> None:
    (directory / "in").mkdir()
    make_clip(directory / "in" / "clip.mp4", seconds=1)
    outside = tmp_path / "outside"
    outside.mkdir()
    opened = tmp_path / "opened"
    os.mkfifo(outside / "clip.mp4")  # who opens it, waits
    source = directory / "in" if exchanged == "folder" else directory / "in" / "clip.mp4"
    target = outside if exchanged == "folder" else outside / "clip.mp4"
    tools = wrapped_tools(tmp_path / "tools", f"{exchange_for_link(source, target)}; touch {opened}")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SourceChanged):
        await probe(RecordingContext(directory, probe_timeout=5), "in/clip.mp4")
    assert opened.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("clip")
async def test_a_link_to_a_folder_within_the_directory_is_followed_for_outputs(directory: Path) -> None:
    (directory / "2030").mkdir()
    (directory / "newest").symlink_to("whole")
    (directory / "whole").symlink_to(directory / "2030" / ".." / "2030")
    result = await poster(RecordingContext(directory), "clip.mp4", "newest/new/a.jpg")
    assert result["output"] == "2030/new/a.jpg"
    (directory / "round").symlink_to("round")
    with pytest.raises(PathRefused, match="links"):
        await poster(RecordingContext(directory), "clip.mp4", "round/a.jpg")


@pytest.mark.usefixtures("clip")
async def test_programs_get_neither_the_workers_environment_nor_all_of_the_memory(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    tools = wrapped_tools(
        tmp_path / "tools", f"cat /proc/$$/environ > {told}/$$; ulimit -v > {told}/${{0##*/}}.kilobytes"
    )
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PEERD_DATABASE_URL", "postgresql://peerd:hunter2@db/peerd")
    monkeypatch.setenv("CLUSTER_SECRET", "hunter2")
    monkeypatch.setenv("FFREPORT", f"file={tmp_path}/report:level=56")  # ffmpeg would write a report there
    await transcode(RecordingContext(directory), "clip.mp4", quality="draft")
    await poster(RecordingContext(directory), "clip.mp4")
    limit = int((told / "ffprobe.kilobytes").read_text())
    assert limit <= 2**20, "a small file with a huge index does not fill the memory"
    seen = [path.read_bytes() for path in told.iterdir() if not path.suffix]
    assert len(seen) >= 7
    names = {variable.split(b"=")[0] for each in seen for variable in each.split(b"\0") if variable}
    assert names <= {b"PATH", b"LC_CTYPE", b"LD_LIBRARY_PATH"}
    assert not (tmp_path / "report").exists()
