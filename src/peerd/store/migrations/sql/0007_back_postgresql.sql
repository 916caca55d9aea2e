-- The indexes as they were before pages.

DROP INDEX tasks_due;

CREATE INDEX tasks_due ON tasks (status, due_at) WHERE status IN ('scheduled', 'failure');

DROP INDEX tasks_closing;

CREATE INDEX tasks_closing ON tasks (status, closing_at) WHERE closing_at IS NOT NULL;
