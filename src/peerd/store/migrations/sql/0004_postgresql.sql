-- Limits and turns, and the indexes of tasks with and without keys.

ALTER TABLE tasks
    ADD COLUMN limit_key TEXT COLLATE "C",
    ADD CONSTRAINT limit_key_form CHECK (limit_key NOT IN ('', '*') AND limit_key NOT LIKE '% ');

DROP INDEX tasks_claim;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending' AND limit_key IS NULL;

CREATE INDEX tasks_turns ON tasks (queue, lane, claim_rank, limit_key, attempts, due_at, id) WHERE status = 'pending' AND limit_key IS NOT NULL;

CREATE TABLE limits (
    queue TEXT COLLATE "C" NOT NULL,
    limit_key TEXT COLLATE "C" DEFAULT '' NOT NULL,
    running INTEGER,
    starts INTEGER,
    period DOUBLE PRECISION,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (queue, limit_key),
    CONSTRAINT running_range CHECK (running >= 0),
    CONSTRAINT rate_range CHECK (starts > 0 AND period > 0),
    CONSTRAINT rate_whole CHECK ((starts IS NULL) = (period IS NULL))
);

CREATE TABLE turns (
    queue TEXT COLLATE "C" NOT NULL,
    turn BIGINT DEFAULT '0' NOT NULL,
    last_key TEXT COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (queue)
);

CREATE TABLE limit_starts (
    queue TEXT COLLATE "C" NOT NULL,
    limit_key TEXT COLLATE "C" NOT NULL,
    turn BIGINT NOT NULL,
    starts INTEGER NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    counts_until TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (queue, limit_key, turn)
);

CREATE INDEX limit_starts_over ON limit_starts (counts_until);
