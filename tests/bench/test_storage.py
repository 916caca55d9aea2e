from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import storage
from bench.databases import SECRET, open_bench_database
from bench.storage import BARE, COPY, GET, OURS, PUT, FileShape, Results
from bench.storage_floor import copy_bare
from bench.storage_servers import BenchStorage, two_nodes, versions
from tests.support.server import ServerUnavailableError

pytestmark = pytest.mark.slow
FEW = FileShape("20 × 10 KiB", 20, 10 * storage.KiB, 4)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_ratios_are_taken_within_the_rounds_and_goals_are_marked() -> None:
    results: Results = {
        (COPY, "a"): {
            OURS: [90e6, 9e6, 30e6],
            "rsync": [100e6, 10e6, 30e6],
            "rsync --fsync": [45e6, 4.5e6, 15e6],
            BARE: [9e6, 9e6, 60e6],
        },
        (GET, "a"): {OURS: [6e6], "nginx": [10e6]},
    }
    assert [cells(line) for line in storage.table(results)[2:]] == [
        [f"{COPY}, a", "30 MB/s", "rsync", "30 MB/s", "0.90 × ✓"],
        [f"{COPY}, a", "30 MB/s", "rsync --fsync", "15 MB/s", "2.00 ×"],
        [f"{COPY}, a", "30 MB/s", BARE, "9 MB/s", "1.00 ×"],
        [f"{GET}, a", "6 MB/s", "nginx", "10 MB/s", "0.60 × ✗"],
    ]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchStorage]:
    with open_bench_database("sqlite") as target, two_nodes(target, tmp_path_factory.mktemp("storage")) as found:
        yield found


def test_files_are_put_got_copied_and_removed_as_by_rsync_and_nginx(nodes: BenchStorage, tmp_path: Path) -> None:
    try:
        assert versions()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    results = storage.measure(nodes, tmp_path, [FEW], rounds=2)
    assert {key: set(by_program) for key, by_program in results.items()} == {
        (PUT, FEW.name): {OURS, "nginx"},
        (GET, FEW.name): {OURS, "nginx"},
        (COPY, FEW.name): {OURS, "rsync", "rsync --fsync", BARE},
    }
    assert all(len(rates) == 2 and min(rates) > 0 for one in results.values() for rates in one.values())
    assert not list(nodes.first.folder.rglob("contents/*/*/*"))


def test_the_client_refuses_a_response_without_the_file_and_the_memory_of_storage_is_read(nodes: BenchStorage) -> None:
    with pytest.raises(Exception, match="returned non-zero exit status"):
        storage.load(nodes.first.url, GET, FEW, SECRET)
    peaks = storage.memory_of(nodes, storage.MiB)
    assert {"first: storage-server-1", "second: storage-1"} <= set(peaks)
    assert min(peaks.values()) > storage.MiB


def test_a_bare_copy_is_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    storage.make_files(source, FileShape("", 3, 10_000, 1))
    target.mkdir()
    assert copy_bare(source, target) > 0
    assert sorted(path.read_bytes() for path in target.iterdir()) == sorted(
        path.read_bytes() for path in source.rglob("0*") if path.is_file()
    )
