-- What queue clients need: deadlines and counters of tasks, an index of those that are set aside, and pauses.
-- The generated column is not stored, so that the table is not rewritten.

ALTER TABLE tasks
    ADD COLUMN ttr BIGINT,
    ADD COLUMN delay BIGINT,
    ADD COLUMN deadline_at TIMESTAMP(6) NULL,
    ADD COLUMN reserves INTEGER,
    ADD COLUMN timeouts INTEGER,
    ADD COLUMN releases INTEGER,
    ADD COLUMN buries INTEGER,
    ADD COLUMN kicks INTEGER,
    ADD COLUMN buried_order BIGINT,
    ALGORITHM=INSTANT;

ALTER TABLE tasks
    ADD COLUMN aside_queue VARCHAR(220) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status IN ('scheduled', 'failure', 'waiting', 'buried') THEN CONCAT(status, ' ', queue) END) VIRTUAL,
    ALGORITHM=INSTANT;

ALTER TABLE tasks ADD KEY tasks_aside (aside_queue, buried_order, due_at, id), ALGORITHM=INPLACE, LOCK=NONE;

ALTER TABLE queues ADD COLUMN pause BIGINT, ALGORITHM=INSTANT;
