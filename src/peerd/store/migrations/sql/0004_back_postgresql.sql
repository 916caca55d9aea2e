-- The claim's index as it was before limits.

DROP INDEX tasks_turns;

DROP INDEX tasks_claim;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending';
