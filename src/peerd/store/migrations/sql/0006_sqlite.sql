-- What queue clients need: deadlines and counters of tasks, an index of those that are set aside, and pauses.

ALTER TABLE tasks ADD COLUMN ttr BIGINT;

ALTER TABLE tasks ADD COLUMN delay BIGINT;

ALTER TABLE tasks ADD COLUMN deadline_at TEXT CONSTRAINT deadline_at_form CHECK (deadline_at IS NULL OR deadline_at IS strftime('%Y-%m-%d %H:%M:%f', deadline_at));

ALTER TABLE tasks ADD COLUMN reserves INTEGER;

ALTER TABLE tasks ADD COLUMN timeouts INTEGER;

ALTER TABLE tasks ADD COLUMN releases INTEGER;

ALTER TABLE tasks ADD COLUMN buries INTEGER;

ALTER TABLE tasks ADD COLUMN kicks INTEGER;

ALTER TABLE tasks ADD COLUMN buried_order BIGINT;

CREATE INDEX tasks_aside ON tasks (queue, status, buried_order, due_at, id) WHERE status IN ('scheduled', 'failure', 'waiting', 'buried');

ALTER TABLE queues ADD COLUMN pause BIGINT;
