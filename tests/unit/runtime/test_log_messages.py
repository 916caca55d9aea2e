from __future__ import annotations

import json
import subprocess
import sys

from tests.support.rows import rows

WRITE = """
import sys, threading
from peerd.runtime.observability import events
from peerd.runtime.process import uncaught_exceptions
from peerd.runtime.observability.log_messages import LogEventListener, configure_logging
log = configure_logging("info", sys.argv[1], node="n", slot="site-1")
FORGED = "x\\n12:00:00.000 [info     ] all is well \\x1b[2J \\x9b \\u202e \\r\\u2028"
try:
    raise LookupError(FORGED)
except LookupError as error:
    reader = LogEventListener(log)
    reader(events.WebRequestFailed(what="GET /\\x1b[31m", error=FORGED, traceback=f"Traceback\\n{FORGED}"))
    reader(events.HttpServerWarned(text=FORGED, error=False))
    thread = threading.Thread(target=uncaught_exceptions.log_exception, args=(error,))
    thread.start()
    thread.join()
"""


def written(form: str) -> str:
    done = subprocess.run([sys.executable, "-c", WRITE, form], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_an_entry_cannot_forge_another_entry_or_control_a_terminal() -> None:
    text = written("console")
    assert not {one for one in text if not (one.isprintable() or one == "\n")}
    entries = [line for line in text.splitlines() if not line.startswith("    ")]
    assert len(entries) == 3, text
    assert all("slot=site-1" in entry for entry in entries), "in every thread"
    assert "    LookupError: x\n    12:00:00.000 [info" in text
    lines = written("json").splitlines()
    assert [json.loads(line)["slot"] for line in lines] == ["site-1"] * 3
    assert "".join(lines).isascii()


@rows("form", ["console", "json"])
def test_a_message_of_the_master_is_one_line_in_the_configured_format(form: str) -> None:
    code = (
        "import sys; from peerd.supervision.console import Console; console = Console('n', sys.argv[1])\n"
        "console.log('died: x\\n12:00:00.000 [info] \\x1b[2J'); console.log('ä' * 5000, level='error')"
    )
    done = subprocess.run([sys.executable, "-c", code, form], capture_output=True, text=True, check=True)
    short, long = done.stderr.splitlines()
    assert done.stderr.isascii() or form == "console"
    assert not {one for one in done.stderr if not (one.isprintable() or one == "\n")}
    if form == "json":
        assert json.loads(short)["event"] == "died: x\n12:00:00.000 [info] \x1b[2J"
        assert json.loads(long)["level"] == "error"
    else:
        assert short == r"peerd n: died: x\n12:00:00.000 [info] \x1b[2J"
    assert 1500 < len(long.encode()) < 4096
