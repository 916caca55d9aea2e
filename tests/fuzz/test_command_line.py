"""The command line: whatever is typed, an exit status and a sentence; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from peerd.cli.app import app
from peerd.config.source import setting_variables
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
    "enqueue", "tasks list", "tasks show", "tasks retry", "tasks cancel", "tasks delete", "tasks move", "tasks bury",
    "tasks kick", "limits set", "limits remove", "limits list", "queues list", "queues pause", "queues resume",
    "nodes list", "nodes drain", "nodes undrain", "check", "doctor", "migrate", "status", "stop", "nonsense", "",
)  # fmt: skip
ARGUMENTS = (
    "q", "1", "-1", "0", "99999999999999999999", "9" * 5000, "1e5", "video", "{}", "[1]", "{", "2026-11-21", "1000w",
    "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "2040-01-01T00:00:00Z", "1e3s", "pending,dead",
    "sqlite:///x/y/z.sqlite", "sqlite:////dev/null", "mysql://u:p@127.0.0.1:1/x", "nonsense://x", "/dev/null", "/",
    "/no/such/file", "-", "\udcff", "a\udcffb",
)  # fmt: skip
words = st.sampled_from(OPTIONS) | st.sampled_from(ARGUMENTS) | values.words.filter(lambda word: "\x00" not in word)
KNOWN: tuple[tuple[list[str], str], ...] = (
    (["enqueue", "q", "name", "-"], "[" * 100_000), (["enqueue", "q", "name", '"\\ud800"'], ""),
    (["enqueue", "q", "name", "1" * 5000], ""), (["enqueue", "q", "--text", "\udcff"], ""),
    (["enqueue", "q", "--file", "/dev/zero"], ""), (["enqueue", "q", "--file", "a\udcff"], ""),
    (["enqueue", "q", "--priority", "9" * 5000], ""), (["enqueue", "q", "--start-at", "0001-01-01T00:00:00+14:00"], ""),
    (["enqueue", "q", "--wait", "--wait-for", "1ms"], ""), (["tasks", "list", "--queue", "\udcff"], ""),
    (["tasks", "list", "--limit", "-1"], ""), (["tasks", "list", "--before", "9" * 30], ""),
    (["tasks", "show", "9" * 30], ""), (["tasks", "show", "9" * 5000], ""), (["nodes", "drain", "\udcff"], ""),
    (["queues", "pause", "q", "--for", "9" * 400], ""), (["queues", "pause", "q", "--for", "1000w"], ""),
    (["limits", "set", "q", "--running", "9" * 30], ""), (["limits", "set", "q", "--rate", "9" * 5000 + "/s"], ""),
    (["limits", "set", "q", "--rate", "5/" + "9" * 5000], ""), (["limits", "remove", "q", "--key", "\udcff"], ""),
    (["check", "--config", "\udcff"], ""), (["doctor", "--database", "sqlite:///\udcff"], ""),
    (["doctor", "--database", "mysql://u:p@[::1/x"], ""),
)  # fmt: skip
"""What once led to a traceback, or to no end."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "peerd.toml").write_text('[node]\nname = "here"\n')
    with Client(f"sqlite:///{folder / 'peerd.sqlite'}") as client:
        client.enqueue_many(["q"] * 5)
    with pytest.MonkeyPatch.context() as patch:
        for name in set(setting_variables()) & set(os.environ):
            patch.delenv(name)
        patch.chdir(folder)
        yield folder


def check_answer(words: list[str], stdin: str) -> None:
    given = stdin.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    result = CliRunner().invoke(app, words, input=given, prog_name="peerd")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.stderr
    assert "Traceback" not in result.stderr
    if result.exit_code and words[:1] not in ([], ["check"], ["doctor"]) and "--json" not in words:
        assert len(result.stderr.strip()) > 10, (result.exit_code, result.stderr)


@searched(50)
@given(command=st.sampled_from(COMMANDS), rest=st.lists(words, max_size=6), stdin=values.words)
def test_whatever_is_typed_there_is_an_answer_or_a_sentence(
    folder: Path, command: str, rest: list[str], stdin: str
) -> None:
    check_answer([*command.split(), *rest], stdin)


def test_what_once_had_no_answer_has_one(folder: Path) -> None:
    for words, stdin in KNOWN:
        check_answer(words, stdin)


@pytest.mark.slow
def test_arguments_that_are_no_text_get_a_sentence_from_the_real_program(folder: Path) -> None:
    """The shell hands over bytes; the standard streams here know ASCII only."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    program: list[str | bytes] = [sys.executable, "-m", "peerd", b"nodes", b"drain", b"\xc3\xa9\xff"]
    ran = subprocess.run(program, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, b"Traceback" in ran.stderr, b"error: " in ran.stderr) == (2, False, True), ran
