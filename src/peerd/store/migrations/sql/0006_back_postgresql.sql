-- The tables as they were before queue clients.

DROP INDEX tasks_aside;

ALTER TABLE tasks
    DROP COLUMN ttr,
    DROP COLUMN delay,
    DROP COLUMN deadline_at,
    DROP COLUMN reserves,
    DROP COLUMN timeouts,
    DROP COLUMN releases,
    DROP COLUMN buries,
    DROP COLUMN kicks,
    DROP COLUMN buried_order;

ALTER TABLE queues DROP COLUMN pause;
