"""Taking tasks: a worker's claim and a queue client's reservation are one operation with different terms.

- `eligibility`: which tasks may be taken, and what a take writes; every condition is written once.
- `backlog`: which of a claimer's queues have tasks, and of what kind.
- `on_postgresql`, `on_mysql`, `on_sqlite`: how the first tasks of many lanes are found there.
- `claiming`: the claim of a worker; a reservation is `peerd.store.jobs.reserving`. Both name their terms: the columns
  that they read and the values that they write.
- `claimer`: the process that takes, and the mutex of claimers that collide.
- `quarantined`: which process stops claiming for the tasks that must run alone.

Tasks that count for a limit are taken by turns of their queue: `peerd.store.take.turns`.
"""
