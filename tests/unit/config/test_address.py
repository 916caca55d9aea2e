from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path

import pymysql
import pytest
from sqlalchemy.engine import make_url

from peerd.config.address import add_password, hosts_of, make_sqlite_path_absolute, mask_url, normalise_url
from tests.support.rows import rows


@rows("url, normal", [
    ("mysql+pymysql://peerd@db/peerd", "mysql+pymysql://peerd@db/peerd"),
    ("mariadb+pymysql://db/peerd", "mysql+pymysql://db/peerd"),
    ("mysql+mysqldb://db/peerd?charset=utf8mb4", "mysql+mysqldb://db/peerd?charset=utf8mb4"),
    ("postgres://db:5433/peerd", "postgresql+psycopg://db:5433/peerd"),
    ("postgresql+psycopg://a:b@db/peerd", "postgresql+psycopg://a:b@db/peerd"),
    ("postgres://db/peerd?user=a@b", "postgresql+psycopg://db/peerd?user=a%40b"),
    ("postgres://a%40b:c%40d@db/peerd", "postgresql+psycopg://a%40b:c%40d@db/peerd"),
    ("mysql+pymysql://a:b@db1,db2:3307/peerd", "mysql+pymysql://a:b@/peerd?host=db1&host=db2%3A3307"),
    ("mysql+pymysql://db1,db2/peerd?charset=utf8mb4", "mysql+pymysql:///peerd?charset=utf8mb4&host=db1&host=db2"),
    ("mysql+pymysql://a@/peerd?host=db1&host=db2", "mysql+pymysql://a@/peerd?host=db1&host=db2"),
    ("mysql+pymysql://a:b,c@db/peerd", "mysql+pymysql://a:b%2Cc@db/peerd"),
    ("postgres://a@db1,db2:5433/peerd", "postgresql+psycopg://a@/peerd?host=db1&host=db2%3A5433"),
    ("sqlite:///peerd.sqlite", "sqlite:///peerd.sqlite"),
    ("sqlite+pysqlite:////var/peerd.sqlite", "sqlite:////var/peerd.sqlite"),
])  # fmt: skip
def test_an_address_gets_its_driver_and_keeps_the_rest(url: str, normal: str) -> None:
    assert normalise_url(url) == normal


def test_the_c_driver_is_used_for_mysql_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MySQLdb", pymysql)  # what pymysql.install_as_MySQLdb() does
    assert normalise_url("mysql://db/peerd") == "mysql+pymysql://db/peerd"
    for name in [name for name in sys.modules if name.partition(".")[0] == "MySQLdb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for driver in ("pymysql", "mysqldb"):
        for scheme in ("mysql", "mariadb"):
            assert normalise_url(f"{scheme}://db/peerd") == f"mysql+{driver}://db/peerd"
        (tmp_path / "MySQLdb.py").touch()
        invalidate_caches()


@rows("url, words", [
    ("redis://db/0", "no database that peerd knows"), ("mysql+aiomysql://db/peerd", "driver aiomysql is not supported"),
    ("mysql://db", "names no database"), ("mysql", "is not an address"), ("", "is not an address"),
    ("sqlite://", "every process must open the same file"),
    ("sqlite:///:memory:", "every process must open the same file"),
    ("sqlite:///file:a?mode=memory&uri=true", "every process must open the same file"),
    ("sqlite://peerd.sqlite", "write sqlite:///peerd.sqlite"),
    ("postgresql://peerd@db:port/peerd", "is not an address"),
    ("mysql://peerd@db1,,db3/peerd", "'' is not one of several servers"),
    ("mysql://peerd@db1,db2:port/peerd", "'db2:port' is not one of several servers"),
    ("mysql://peerd@db1,db2", "names no database"),
    ("mysql://peerd:p@ss@db/peerd", "an @ of a password or name is written %40"),
    ("mysql://peerd:p@s,s/x@db/peerd", "an @ of a password or name is written %40"),
])  # fmt: skip
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        normalise_url(url)


@rows("url", [
    "mysql://peerd:secret@db/peerd", "mysql://peerd:secret@db:port/peerd", "mysql://peerd:secret@db1,db2/peerd",
    "mysql://peerd:secret@db1,db2:port/peerd", "mysql://peerd:se@secret@db/peerd",
    "mysql://peerd:se/cret?secret@db/peerd", "postgresql://db/peerd?user=a&password=secret", "redis://:secret@db/0",
    "mysql://pe@erd:secret@db/peerd", "mysql://pe/erd:secret@db/peerd", "mysql://peerd:s@secret/s@db/peerd",
    "mysql://peerd:s@secret,secret/s@db/peerd", "mysql://peerd:s?secret@secret/peerd@db",
    "mysql:/peerd:secret@db/peerd", "mysql//peerd:secret@db/peerd", "peerd:secret@db/peerd",
    "mysql://peerd:s\nsecret@db/peerd", "mysql://peerd:secret", "sqlite://peerd:secret@/x",
])  # fmt: skip
def test_a_password_is_not_shown(url: str) -> None:
    assert "secret" not in mask_url(url)
    try:
        found = make_url(normalise_url(url))
    except ValueError as error:
        assert "secret" not in str(error)  # noqa: PT017 - whether it is refused is not the question
    else:
        assert "secret" not in f"{found.username} {found.host} {found.port} {found.database} {hosts_of(found)}"


def test_any_password_survives_and_a_relative_path_is_that_of_the_folder() -> None:
    assert make_url(add_password("mysql://peerd@db/peerd", "p@ss:/w%rd?#")).password == "p@ss:/w%rd?#"
    url = make_url(add_password("mysql://peerd@db1,db2:3307/peerd", "p@ss,word"))
    assert (url.password, hosts_of(url)) == ("p@ss,word", [("db1", None), ("db2", 3307)])
    for given, absolute in (
        ("sqlite:///data/a.sqlite", "sqlite:////srv/studio/data/a.sqlite"),
        ("sqlite:////var/a.sqlite", "sqlite:////var/a.sqlite"),
        ("mysql://db/peerd", "mysql://db/peerd"),
    ):
        assert make_sqlite_path_absolute(given, Path("/srv/studio")) == absolute
