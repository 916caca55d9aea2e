"""Wait until the site is crawled, and show which spider has read how many pages."""

import json
import time
from collections import Counter

from peerd import Client, Status, Task

ENDED = {Status.DONE, Status.DEAD}
WITHIN = 90.0


def pages(client: Client) -> list[Task]:
    """Every page that a spider has found so far: a task each, because jobs with a result are kept."""
    return list(client.tasks.list(queue="pages", limit=1000))


with Client.from_config() as client:
    deadline = time.monotonic() + WITHIN
    while not (found := pages(client)) or any(page.status not in ENDED for page in found):
        assert time.monotonic() < deadline, Counter(str(page.status) for page in found)
        time.sleep(0.2)
    read = [json.loads(page.result) for page in found if page.result is not None]
    failed = [(page, client.tasks.attempts(page.id)) for page in found if page.attempts]

assert len({page["url"] for page in read}) == len(read), "a page was read twice"
print(f"{len(read)} pages, each once:")
for spider, number in sorted(Counter(page["by"] for page in read).items()):
    print(f"  {spider}: {number}")
for page, attempts in failed:
    print(f"{json.loads(page.body or '')['url']}: {attempts[0].error}, then {page.status}")
