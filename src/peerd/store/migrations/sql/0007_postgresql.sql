-- Pages of ended and of scheduled tasks need no sort.

DROP INDEX tasks_due;

CREATE INDEX tasks_due ON tasks (status, due_at, id) WHERE status IN ('scheduled', 'failure');

DROP INDEX tasks_closing;

CREATE INDEX tasks_closing ON tasks (status, closing_at, id) WHERE closing_at IS NOT NULL;
