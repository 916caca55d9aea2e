-- The virtual column as it was.

ALTER TABLE tasks
    DROP KEY tasks_aside,
    DROP COLUMN aside_queue,
    ADD COLUMN aside_queue VARCHAR(220) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status IN ('scheduled', 'failure', 'waiting', 'buried') THEN CONCAT(status, ' ', queue) END) VIRTUAL,
    ADD KEY tasks_aside (aside_queue, buried_order, due_at, id);
