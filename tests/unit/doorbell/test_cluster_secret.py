from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy.engine import make_url

from peerd.doorbell.cluster_secret import read_secret, secret_path


def test_a_server_has_the_configured_secret_and_without_a_folder_for_a_file_there_is_none(tmp_path: Path) -> None:
    server = make_url("mysql://peerd@db/peerd")
    assert read_secret(server, "given") == "given"
    nowhere = make_url(f"sqlite:///{tmp_path / 'nowhere' / 'peerd.sqlite'}")
    assert [read_secret(url, None, make=True) for url in (server, make_url("sqlite://"), nowhere)] == [None] * 3


def test_beside_sqlite_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    url = make_url(f"sqlite:///{tmp_path / 'peerd.sqlite'}")
    assert read_secret(url, None) is None
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: read_secret(url, None, make=True), range(32)))
    assert len(set(made)) == 1
    assert read_secret(url, None) == made[0]
    file = secret_path(url)
    assert file is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["peerd.sqlite.secret"]
