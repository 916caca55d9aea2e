"""What docs/protocol.md shows is what happens: its conversation, and its programs in Python and in Node.js."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.gateway.protocols.json.parser import MESSAGE_OVERHEAD
from peerd.gateway.protocols.json.scanner import MAX_DEPTH
from peerd.gateway.sessions.json import MAX_WAITING
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from tests.gateway.gateway_thread import GatewayThread

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayThread]:
    database = Database(f"sqlite:///{tmp_path / 'gateway.sqlite'}")
    migrate(database)
    with GatewayThread(database) as gateway:
        yield gateway
    database.close()


def output(gateway: GatewayThread, folder: Path, program: str, name: str, *command: str) -> str:
    assert "11300" in program
    (folder / name).write_text(program.replace("11300", str(gateway.address[1])))
    done = subprocess.run([*command, name], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_conversation_of_the_page(gateway: GatewayThread) -> None:
    [conversation] = [block for block in blocks("") if block.startswith("→")]
    with socket.create_connection(gateway.address, 20) as connection, connection.makefile("rb") as replies:
        for line in conversation.splitlines():
            arrow, text = line.split(" ", 1)
            if arrow == "→":
                connection.sendall(text.encode())
            else:
                assert replies.readline().decode() == text + "\n"


@pytest.mark.parametrize(("number", "said"), [(0, "http://example.org/\nget_job: No work to do\n"), (1, "")])
def test_the_python_programs_of_the_page(gateway: GatewayThread, tmp_path: Path, number: int, said: str) -> None:
    assert output(gateway, tmp_path, blocks("python")[number], "program.py", sys.executable) == said


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_program_without_a_library(gateway: GatewayThread, tmp_path: Path) -> None:
    [program] = blocks("js")
    assert output(gateway, tmp_path, program, "program.mjs", "node") == "http://example.org/\ntrue\n"


def test_the_limits_of_the_page() -> None:
    assert f"`max_job_size` + {MESSAGE_OVERHEAD} bytes, and at most {MAX_DEPTH} objects" in PAGE
    assert f"At most {MAX_WAITING} `get_job`s of a connection" in PAGE
    assert f"JSON of at most {MAX_DEPTH - 1} levels" in PAGE


def test_the_replies_of_the_page_are_json() -> None:
    shown = re.findall(r"`(\{\"ok\".*?\})`", PAGE)
    assert len(shown) > 5
    for text in shown:
        json.loads(text)
