"""The command line: whatever is typed, an exit status and a sentence; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from peerd.cli.app import app
from peerd.config.reading.environment import setting_variables
from peerd.operate.client import Client
from tests.fuzz import values
from tests.fuzz.conftest import searched

OPTIONS = (
    "--json", "--config", "--database", "--debug-not", "--priority", "--max-attempts", "--timeout", "--unique",
    "--unique-for", "--start-at", "--start-in", "--finish-at", "--finish-in", "--node", "--wait-for", "--text",
    "--file", "--trace-context", "--status", "--queue", "--name", "--limit", "--before", "--to", "--to-any", "--all",
    "--yes", "--for", "--limit-key", "--key", "--each-key", "--running", "--rate", "-h", "--version",
)  # fmt: skip
COMMANDS = (
    ("enqueue",), ("tasks", "list"), ("tasks", "show"), ("tasks", "retry"), ("tasks", "cancel"), ("tasks", "delete"),
    ("tasks", "move"), ("tasks", "bury"), ("tasks", "kick"),
    ("limits", "set"), ("limits", "remove"), ("limits", "list"),
    ("queues", "list"), ("queues", "pause"), ("queues", "resume"), ("nodes", "list"),
    ("nodes", "drain"), ("nodes", "undrain"), ("check",), ("doctor",), ("migrate",), ("status",), ("stop",),
    ("nonsense",), (),
)  # fmt: skip
ARGUMENTS = (
    "q", "1", "-1", "0", "99999999999999999999", "9" * 5000, "1e5", "video", "{}", "[1]", "{", "2026-11-21", "1000w",
    "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "2040-01-01T00:00:00Z", "1e3s", "pending,dead",
    "sqlite:///x/y/z.sqlite", "sqlite:////dev/null", "mysql://u:p@127.0.0.1:1/x", "nonsense://x", "/dev/null", "/",
    "/no/such/file", "-", "\udcff", "a\udcffb",
)  # fmt: skip
words = st.sampled_from(OPTIONS) | st.sampled_from(ARGUMENTS) | values.words.filter(lambda word: "\x00" not in word)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a little work in it, whose commands see nothing else."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "peerd.toml").write_text('[node]\nname = "here"\n')
    with Client(f"sqlite:///{folder / 'peerd.sqlite'}") as client:
        client.enqueue_many(["q"] * 5)
    with pytest.MonkeyPatch.context() as patch:
        for name in set(setting_variables()) & set(os.environ):
            patch.delenv(name)
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        yield folder


def run(*words: str, stdin: str | None = None) -> tuple[int, str]:
    """Its exit status, and what it says of what is wrong."""
    result = CliRunner().invoke(app, list(words), input=stdin, prog_name="peerd")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@searched(60)
@given(command=st.sampled_from(COMMANDS), rest=st.lists(words, max_size=6), stdin=values.words)
@example(command=("enqueue",), rest=["q", "name", "-"], stdin="[" * 100_000)
@example(command=("enqueue",), rest=["q", "name", '"\\ud800"'], stdin="")
@example(command=("enqueue",), rest=["q", "name", "1" * 5000], stdin="")
@example(command=("enqueue",), rest=["q", "--text", "\udcff"], stdin="")
@example(command=("enqueue",), rest=["q", "--file", "/dev/zero"], stdin="")
@example(command=("enqueue",), rest=["q", "--file", "a\udcff"], stdin="")
@example(command=("enqueue",), rest=["q", "--priority", "9" * 5000], stdin="")
@example(command=("enqueue",), rest=["q", "--start-at", "0001-01-01T00:00:00+14:00"], stdin="")
@example(command=("enqueue",), rest=["q", "--wait", "--wait-for", "1ms"], stdin="")
@example(command=("tasks", "list"), rest=["--queue", "\udcff"], stdin="")
@example(command=("tasks", "list"), rest=["--limit", "-1"], stdin="")
@example(command=("tasks", "list"), rest=["--before", "9" * 30], stdin="")
@example(command=("tasks", "show"), rest=["9" * 30], stdin="")
@example(command=("tasks", "show"), rest=["9" * 5000], stdin="")
@example(command=("nodes", "drain"), rest=["\udcff"], stdin="")
@example(command=("queues", "pause"), rest=["q", "--for", "9" * 400], stdin="")
@example(command=("queues", "pause"), rest=["q", "--for", "1000w"], stdin="")
@example(command=("limits", "set"), rest=["q", "--running", "9" * 30], stdin="")
@example(command=("limits", "set"), rest=["q", "--rate", "9" * 5000 + "/s"], stdin="")
@example(command=("limits", "set"), rest=["q", "--rate", "5/" + "9" * 5000], stdin="")
@example(command=("limits", "remove"), rest=["q", "--key", "\udcff"], stdin="")
@example(command=("check",), rest=["--config", "\udcff"], stdin="")
@example(command=("doctor",), rest=["--database", "sqlite:///\udcff"], stdin="")
@example(command=("doctor",), rest=["--database", "mysql://u:p@[::1/x"], stdin="")
def test_whatever_is_typed_there_is_an_answer_or_a_sentence(
    folder: Path, command: tuple[str, ...], rest: list[str], stdin: str
) -> None:
    status, said = run(*command, *rest, stdin=stdin.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    assert status in (0, 1, 2), said
    assert "Traceback" not in said
    if status and command not in {("check",), ("doctor",), ()} and "--json" not in rest:
        assert len(said.strip()) > 10, (status, said)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["enqueue", "no spaces"], 2, "queue: 'no spaces' is not 1 to 200 of"),
        (["enqueue", "q", "n", "{"], 2, "quote it as the shell needs it"),
        (["enqueue", "q", "--priority", "x"], 2, "Invalid value for '--priority'"),
        (["enqueue", "q", "--start-in", "soon"], 2, "'soon' is not a duration"),
        (["tasks", "list", "--status", "finished"], 2, "is none of scheduled, pending"),
        (["tasks", "show", "123456"], 1, "it was deleted or purged"),
        (["nonsense"], 2, "No such command"),
        (["migrate", "--database", "nonsense://x"], 2, "is no database that peerd knows"),
    ],
)
def test_what_is_wrong_is_reported_with_its_remedy(folder: Path, words: list[str], status: int, says: str) -> None:
    found, said = run(*words)
    assert (found, says in " ".join(said.split())) == (status, True), said


def test_arguments_that_are_no_text_get_a_sentence_from_the_real_program(folder: Path) -> None:
    """The shell hands over bytes; the standard streams here know ASCII only."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for words in ([b"enqueue", b"\xff"], [b"nodes", b"drain", b"\xc3\xa9\xff"]):
        ran = subprocess.run(
            [sys.executable, "-m", "peerd", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 2, ran
        assert b"Traceback" not in ran.stderr
        assert b"error: " in ran.stderr
