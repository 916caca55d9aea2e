from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
STUDIO = """
from peerd import Queue, Retry

mail = Queue("mail")

@mail.task
async def send(to: str) -> object:
    return f"sent to {to}" if to != "nobody" else Retry("5m", "no answer")

def sign_up(client, name):
    return client.enqueue(send.with_args(name)).result(timeout=1)
"""


def test_the_fixtures_of_the_page_work(tmp_path: Path) -> None:
    files = re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in [("studio.py", STUDIO), *files]:
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
