-- The tables as they were before queue clients.

DROP INDEX tasks_aside;

ALTER TABLE tasks DROP COLUMN ttr;

ALTER TABLE tasks DROP COLUMN delay;

ALTER TABLE tasks DROP COLUMN deadline_at;

ALTER TABLE tasks DROP COLUMN reserves;

ALTER TABLE tasks DROP COLUMN timeouts;

ALTER TABLE tasks DROP COLUMN releases;

ALTER TABLE tasks DROP COLUMN buries;

ALTER TABLE tasks DROP COLUMN kicks;

ALTER TABLE tasks DROP COLUMN buried_order;

ALTER TABLE queues DROP COLUMN pause;
