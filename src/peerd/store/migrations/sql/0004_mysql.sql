-- Limits and turns, and the indexes of tasks with and without keys.

ALTER TABLE tasks
    ADD COLUMN limit_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    ADD COLUMN claim_queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status = 'pending' AND limit_key IS NULL THEN queue WHEN status = 'working' THEN '' END) STORED,
    ADD COLUMN turn_queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status = 'pending' AND limit_key IS NOT NULL THEN queue END) STORED,
    ADD COLUMN waiting_as ENUM('scheduled','pending','working','done','failure','dead','waiting','canceled','buried') CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status IN ('scheduled', 'failure') OR status = 'pending' AND start_at IS NOT NULL THEN status END) STORED,
    ADD COLUMN closing_as ENUM('scheduled','pending','working','done','failure','dead','waiting','canceled','buried') CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (CASE WHEN status = 'pending' AND finish_at IS NOT NULL OR status IN ('done', 'dead', 'canceled') THEN status END) STORED,
    ADD CONSTRAINT limit_key_form CHECK (limit_key NOT IN ('', '*') AND limit_key NOT LIKE '% '),
    DROP KEY tasks_claim,
    DROP KEY tasks_due,
    DROP KEY tasks_closing,
    ADD KEY tasks_claim (claim_queue, lane, claim_rank, attempts, due_at, id),
    ADD KEY tasks_turns (turn_queue, lane, claim_rank, limit_key, attempts, due_at, id),
    ADD KEY tasks_due (waiting_as, due_at),
    ADD KEY tasks_closing (closing_as, closing_at);

CREATE TABLE IF NOT EXISTS limits (
    queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    limit_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    running INTEGER,
    starts INTEGER,
    period DOUBLE,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    updated_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6),
    PRIMARY KEY (queue, limit_key),
    CONSTRAINT running_range CHECK (running >= 0),
    CONSTRAINT rate_range CHECK (starts > 0 AND period > 0),
    CONSTRAINT rate_whole CHECK ((starts IS NULL) = (period IS NULL))
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS turns (
    queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    turn BIGINT NOT NULL DEFAULT '0',
    last_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    PRIMARY KEY (queue)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS limit_starts (
    queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    limit_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    turn BIGINT NOT NULL,
    starts INTEGER NOT NULL,
    started_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    counts_until TIMESTAMP(6) NULL,
    PRIMARY KEY (queue, limit_key, turn),
    KEY limit_starts_over (counts_until)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
