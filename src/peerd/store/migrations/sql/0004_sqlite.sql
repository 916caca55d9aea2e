-- Limits and turns, and the indexes of tasks with and without keys.

ALTER TABLE tasks ADD COLUMN limit_key TEXT CONSTRAINT limit_key_form CHECK (limit_key NOT IN ('', '*') AND limit_key NOT LIKE '% ');

DROP INDEX tasks_claim;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending' AND limit_key IS NULL;

CREATE INDEX tasks_turns ON tasks (queue, lane, claim_rank, limit_key, attempts, due_at, id) WHERE status = 'pending' AND limit_key IS NOT NULL;

CREATE TABLE limits (
    queue TEXT NOT NULL,
    limit_key TEXT DEFAULT '' NOT NULL,
    running INTEGER,
    starts INTEGER,
    period DOUBLE,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (queue, limit_key),
    CONSTRAINT running_range CHECK (running >= 0),
    CONSTRAINT rate_range CHECK (starts > 0 AND period > 0),
    CONSTRAINT rate_whole CHECK ((starts IS NULL) = (period IS NULL)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at))
);

CREATE TABLE turns (
    queue TEXT NOT NULL,
    turn BIGINT DEFAULT '0' NOT NULL,
    last_key TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (queue)
);

CREATE TABLE limit_starts (
    queue TEXT NOT NULL,
    limit_key TEXT NOT NULL,
    turn BIGINT NOT NULL,
    starts INTEGER NOT NULL,
    started_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    counts_until TEXT,
    PRIMARY KEY (queue, limit_key, turn),
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT counts_until_form CHECK (counts_until IS NULL OR counts_until IS strftime('%Y-%m-%d %H:%M:%f', counts_until))
);

CREATE INDEX limit_starts_over ON limit_starts (counts_until);
