-- Log lines of attempts.

CREATE TABLE task_logs (
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    level TEXT COLLATE "C" NOT NULL,
    logger TEXT NOT NULL,
    message TEXT NOT NULL,
    fields TEXT,
    PRIMARY KEY (task_id, lease, sequence)
);

CREATE INDEX task_logs_at ON task_logs (at);
