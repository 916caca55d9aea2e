"""What docs/gateway.md and docs/protocol.md show works: programs, a conversation, and sections of settings."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peerd import TaskWorker
from peerd.config import check
from peerd.store.connection.database import Database
from tests.gateway.gateway_thread import GatewayThread
from tests.support.servers import DatabaseFactory

GATEWAY, PROTOCOL = ((Path(__file__).parents[2] / "docs" / name).read_text() for name in ("gateway.md", "protocol.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def gateway(module_factory: DatabaseFactory) -> Iterator[GatewayThread]:
    with closing(Database(module_factory("sqlite"))) as database, GatewayThread(database) as gateway:
        yield gateway


def output(gateway: GatewayThread, folder: Path, program: str, name: str, *command: str) -> str:
    assert "11300" in program
    (folder / name).write_text(program.replace("11300", str(gateway.address[1])))
    done = subprocess.run([*command, name], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_conversation_of_the_page(gateway: GatewayThread) -> None:
    [conversation] = [block for block in blocks(PROTOCOL, "") if block.startswith("→")]
    with socket.create_connection(gateway.address, 20) as connection, connection.makefile("rb") as replies:
        for line in conversation.splitlines():
            arrow, text = line.split(" ", 1)
            if arrow == "→":
                connection.sendall(text.encode())
            else:
                assert replies.readline().decode() == text + "\n"


def test_the_python_programs_of_the_pages(gateway: GatewayThread, tmp_path: Path) -> None:
    programs = [*blocks(PROTOCOL, "python")[:2], blocks(GATEWAY, "python")[0]]
    said = [output(gateway, tmp_path, program, "program.py", sys.executable) for program in programs]
    assert said == ["http://example.org/\nget_job: No work to do\n", "", "to: you\n"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_program_without_a_library(gateway: GatewayThread, tmp_path: Path) -> None:
    [program] = blocks(PROTOCOL, "js")
    assert output(gateway, tmp_path, program, "program.mjs", "node") == "http://example.org/\ntrue\n"


def test_the_worker_and_the_sections_of_the_page(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks(GATEWAY, "python")[1], "jobs.py", "exec"), names)
    assert issubclass(names["Mails"], TaskWorker)
    assert tuple(names["Mails"].queues) == ("mails",)
    path = tmp_path / "peerd.toml"
    path.write_text("\n".join(blocks(GATEWAY, "toml")))
    found = check(path, {})
    assert (found.problems, found.warnings) == ([], [])
    assert found.settings is not None
    assert (found.settings.queues["mails"].history, found.settings.gateway["queue"].processes) == (604_800.0, 1)
