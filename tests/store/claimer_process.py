"""A program that claims and completes until nothing is left, and prints its claims, one per line."""

from __future__ import annotations

import sys

from peerd.store import outcomes
from peerd.store.connection.database import Database
from peerd.store.outcomes import ClaimId
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.store.take.claimer import Claimer, ClaimMutex


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    url, node_id, incarnation, process_id, limit = sys.argv[1:]
    database = Database(url, pool_size=1)
    claimer = Claimer(node_id=int(node_id), incarnation=incarnation, process_id=int(process_id), queues=("q", "r"))
    print_line("ready")
    sys.stdin.readline()
    mutex, lost_candidates = ClaimMutex(), True
    while True:
        token = new_token()
        won = database.run_short(claiming.claim, claimer, token=token, limit=int(limit), mutex=mutex)
        if not won.tasks and not won.lost_candidates and not lost_candidates:
            break
        lost_candidates = won.lost_candidates
        for task in won.tasks:
            print_line(f"{task.id} {task.lease}")
        results = {ClaimId(task.id, task.lease): None for task in won.tasks}
        if refused := database.run(outcomes.complete, claimer.process_id, results):
            print_line(f"refused {refused}")
    database.close()


if __name__ == "__main__":
    main()
