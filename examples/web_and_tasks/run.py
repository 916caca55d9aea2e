"""Ask the site for a picture, follow its progress, and see that the site was told of it."""

import json
import sys
import time
from typing import Any
from urllib.request import Request, urlopen

SITE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"


def ask(method: str, path: str, value: object = None) -> Any:
    """One request to the site."""
    body = None if value is None else json.dumps(value).encode()
    with urlopen(Request(SITE + path, body, method=method), timeout=30) as answer:
        return json.load(answer)


job = ask("POST", "/pictures", {"title": "mine", "width": 300, "depth": 500})["job"]
deadline = time.monotonic() + 60
state: dict[str, Any] = {"status": "pending"}
while state["status"] != "done":
    assert state["status"] not in {"dead", "canceled"}, state
    assert time.monotonic() < deadline, state
    time.sleep(0.2)
    state = ask("GET", job)
    print(f"{state['status']}: {state['progress'] or 0:.0%}")

told = ask("GET", "/pictures")
while state["result"] not in told["latest"]:
    assert time.monotonic() < deadline, told
    time.sleep(0.2)
    told = ask("GET", "/pictures")
print(f"{told['told']} was told of {state['result']['title']}: {SITE}{state['result']['picture']}")
