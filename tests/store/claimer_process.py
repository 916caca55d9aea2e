"""A program that claims and completes until nothing is left, and says what it had, line by line."""

from __future__ import annotations

import sys

from peerd.store.claim import claim
from peerd.store.claim.claimer import Claimer
from peerd.store.claim.mutex import Line
from peerd.store.connection.database import Database
from peerd.store.outcomes import complete
from peerd.store.outcomes.recording import Held
from peerd.store.statements.token import new_token


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    url, node_id, incarnation, process_id, limit = sys.argv[1:]
    database = Database(url, pool_size=1)
    claimer = Claimer(node_id=int(node_id), incarnation=incarnation, process_id=int(process_id), queues=("q", "r"))
    say("ready")
    sys.stdin.readline()
    line, lost_some = Line(), True
    while True:
        token = new_token()
        won = database.run_each(claim.claim, claimer, token=token, limit=int(limit), line=line)
        if not won.tasks and not won.lost_some and not lost_some:
            break
        lost_some = won.lost_some
        for task in won.tasks:
            say(f"{task.id} {task.lease}")
        results = {Held(task.id, task.lease): None for task in won.tasks}
        if refused := database.run(complete.complete, claimer.process_id, results):
            say(f"refused {refused}")
    database.close()


if __name__ == "__main__":
    main()
