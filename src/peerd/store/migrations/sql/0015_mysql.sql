-- A stored column in place of a virtual one: a Galera server with an index of a virtual column can run out of memory.
-- No clause ALGORITHM: only a copy of the table can have the column.

ALTER TABLE tasks
    DROP KEY tasks_aside,
    DROP COLUMN aside_queue,
    ADD COLUMN aside_queue VARCHAR(220) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status IN ('scheduled', 'failure', 'waiting', 'buried') THEN CONCAT(status, ' ', queue) END) STORED,
    ADD KEY tasks_aside (aside_queue, buried_order, due_at, id);
