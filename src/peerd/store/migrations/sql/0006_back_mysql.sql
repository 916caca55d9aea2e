-- The tables as they were before queue clients.

ALTER TABLE tasks
    DROP KEY tasks_aside,
    DROP COLUMN aside_queue;

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
