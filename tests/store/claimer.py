"""A program that claims and completes until nothing is left, and says what it had, line by line."""

from __future__ import annotations

import sys

from peerd.store import claim, complete
from peerd.store.claim import Claimer
from peerd.store.database import Database
from peerd.store.finish import Held


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    url, node_id, incarnation, process_id, limit = sys.argv[1:]
    database = Database(url, pool_size=1)
    claimer = Claimer(node_id=int(node_id), incarnation=incarnation, process_id=int(process_id), queues=("q", "r"))
    say("ready")
    sys.stdin.readline()
    further, contended = 0, True
    while True:
        token = claim.new_token()
        won = database.run(claim.claim, claimer, token=token, limit=int(limit), look_further=further)
        further = min(further * 2 + int(limit), 64) if won.contended else 0
        if not won.tasks and not won.contended and not contended:
            break
        contended = won.contended
        for task in won.tasks:
            say(f"{task.id} {task.lease}")
        results = {Held(task.id, task.lease): None for task in won.tasks}
        if refused := database.run(complete.complete, claimer.process_id, results):
            say(f"refused {refused}")
    database.close()


if __name__ == "__main__":
    main()
