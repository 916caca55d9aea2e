-- What queue clients need: deadlines and counters of tasks, an index of those that are set aside, and pauses.

ALTER TABLE tasks
    ADD COLUMN ttr BIGINT,
    ADD COLUMN delay BIGINT,
    ADD COLUMN deadline_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN reserves INTEGER,
    ADD COLUMN timeouts INTEGER,
    ADD COLUMN releases INTEGER,
    ADD COLUMN buries INTEGER,
    ADD COLUMN kicks INTEGER,
    ADD COLUMN buried_order BIGINT;

CREATE INDEX tasks_aside ON tasks (queue, status, buried_order NULLS FIRST, due_at, id) WHERE status IN ('scheduled', 'failure', 'waiting', 'buried');

ALTER TABLE queues ADD COLUMN pause BIGINT;
