-- The claim's index as it was before limits; SQLite cannot drop a column that a constraint names, and keeps it.

DROP INDEX tasks_turns;

DROP INDEX tasks_claim;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending';
