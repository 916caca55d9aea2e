from __future__ import annotations

import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from peerd.config import ConfigError, load
from peerd.config.source import find_line, index_key_lines
from tests.support.certificates import make_certificate
from tests.support.rows import rows
from tests.unit.config.conftest import EMPTY, Write, checked, problems


@rows("text, line, words", [
    ("[node]\nname = \n", 2, "this is not TOML"), ("[node]\nname = 'a\n", 2, "this is not TOML"),
    ("[node]\nname = [1,\n", 2, "this is not TOML"),
    ("[node]\nname = 'a'\nname = 'b'\n", 3, "name is given twice; keep one of them"),
    ("[node]\n[database]\n[node]\n", 3, "[node] is given twice; keep one of them"),
])  # fmt: skip
def test_invalid_toml_is_reported_with_its_line(text: str, line: int, words: str, write: Write) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(Path(path.name), EMPTY)
    [problem] = caught.value.problems
    assert (problem.file, problem.line) == ("peerd.toml", line)
    assert str(problem).startswith(f"peerd.toml:{line}: {words}")


def test_a_value_in_place_of_a_table_is_reported(write: Write) -> None:
    for text in ("node = 3", "workers = 'a'", "[workers]\nvideo = 3", "[[node]]\nname = 'a'"):
        [problem] = problems(write(text))
        assert "must be a table" in problem
    for key in ("project_directory", "file"):  # derived from the path of the file
        [problem] = problems(write(f'{key} = "/"'))
        assert "unknown table" in problem


@rows(
    "text, warning",
    [
        ("", "workers: no worker is enabled"),
        ("[node]\ngrace = '5m'", "systemd kills a service that takes more than 1m30s to stop"),
        ("[workers.a]\ntasks = 'a:b'\ngrace = '1m'", "the node stops after 30s, also where a worker is given more"),
        ("[workers.a]\ntasks = 'a:b'\nupdate = '20s'", "one late touch and a running task is taken away"),
        (
            "[workers.a]\ntasks = 'a:b'\n[workers.c]\ntasks = 'a:b'\nmax_attempts = 5",
            "peerd.toml:5: workers.c.max_attempts: a:b is served by a too, with another max_attempts",
        ),
        ("[web.a]\napp = 'a:b'\nbind = ':80'\nkeep_alive = '75s'", "peerd.toml:4: web.a.keep_alive: "),
        ("[web.a]\napp = 'a:b'\nbind = ':80'\nreuse_port = true", "peerd.toml:4: web.a.reuse_port: "),
        ("[node]\nzone = 'b'", "SQLite serves one machine only"),
        ("[database]\nurl = 'mysql://peerd:s3cr3t@db/peerd'", "every user of this machine can read the password"),
    ],
)
def test_settings_that_are_probably_not_meant_are_a_warning(text: str, warning: str, write: Write) -> None:
    found = checked(write(text))
    assert found.problems == []
    assert any(warning in str(each) for each in found.warnings)
    assert "s3cr3t" not in str(found.warnings)


def test_each_world_readable_secret_is_reported_with_its_file(write: Write, project: Path) -> None:
    path = write("""
        database = { url = "mysql://peerd@db/peerd", password_file = "database.password" }
        cluster = { secret_file = "cluster.secret" }
        workers.a = { tasks = "a:b" }
        gateway.g = { token_file = "queue.token", tls_certificate = "queue.pem", tls_key = "queue.key" }
        gateway.b = { bind = "127.0.0.1:0", token = "a-token-of-some-length" }
        alerts.chat = { webhook = "https://chat.example/hooks/9f1c" }
        [alerts.post]
        mail = { server = "mail", sender = "a@b", to = "c@d", user = "peerd", password_file = "mail.password" }
    """)
    make_certificate(project, "queue")
    names = ("database.password", "cluster.secret", "mail.password", "queue.token")
    for name in names:
        (project / name).write_text("a-secret-of-some-length")
    for file in (path, *(project / name for name in (*names, "queue.key"))):
        file.chmod(0o644)
    found = checked(path)
    assert found.problems == []
    assert {warning.key: warning.remedy for warning in found.warnings} == {
        "database.password_file": f"chmod o= {project}/database.password",
        "cluster.secret_file": f"chmod o= {project}/cluster.secret",
        "alerts.chat.webhook": f"chmod o= {path.absolute()}",
        "alerts.post.mail.password_file": f"chmod o= {project}/mail.password",
        "gateway.g.token_file": f"chmod o= {project}/queue.token",
        "gateway.g.tls_key": f"chmod o= {project}/queue.key",
        "gateway.b.token": f"chmod o= {path.absolute()}",
    }
    for file in (path, *(project / name for name in (*names, "queue.key"))):
        file.chmod(0o640)
    assert checked(path).warnings == []


@rows("variable, key", [({}, "cluster.secret"), ({"PEERD_CLUSTER_SECRET": "a secret that all nodes share"}, None)])
def test_a_secret_in_the_file_counts_unless_a_variable_has_one(
    variable: dict[str, str], key: str | None, write: Write
) -> None:
    path = write("[cluster]\nsecret = 'a secret that all nodes share'\n[workers.a]\ntasks = 'a:b'\n")
    assert [warning.key for warning in checked(path, variable).warnings] == ([key] if key else [])


TEXT = dedent(
    '''
    # [node] is not here
    top = 1
    [node] # but here
    name = "a # [b]"
    "quoted key" = 'x = 1'
    text = """
    [workers.no]
    count = 1
    \\""" still inside
    """
    list = [
        "one", # ]
        "two",
    ]
    after = 3

    [workers.video]
    tasks = "a:b"
    options.deep.key = 1
    inline = { one = 1, two = "}" }
    [workers."odd.name"]
    count = 2
    [[many]]
    first = 1
    [[many]]
    first = 2
    literal = \'\'\'
    x = 1\'\'\'
    last = true'''
)


def test_each_key_has_the_line_that_it_is_written_on() -> None:
    lines, numbered = index_key_lines(TEXT), list(enumerate(TEXT.splitlines(), start=1))
    for key, beginning in {
        ("top",): "top",
        ("node",): "[node]",
        ("node", "name"): "name",
        ("node", "quoted key"): '"quoted',
        ("node", "after"): "after",
        ("workers", "video", "options", "deep", "key"): "options",
        ("workers", "video", "inline"): "inline",
        ("workers", "odd.name", "count"): "count = 2",
        ("many", "first"): "first = 1",
        ("many", "last"): "last",
    }.items():
        assert lines[key] == next(number for number, line in numbered if line.startswith(beginning)), key
    lines = index_key_lines(TEXT)
    assert ("workers", "no") not in lines
    assert not any("x" in path for path in lines)
    for table, content in tomllib.loads(TEXT).items():
        assert (table,) in lines
        if isinstance(content, dict):
            assert all((table, key) in lines for key in content)
    assert tomllib.loads(TEXT)["node"]["after"] == 3
    of_few = index_key_lines("a = 1\n[node]\n")
    assert (find_line(("node", "missing"), of_few), find_line(("other",), of_few)) == (2, None), "the line of its table"
