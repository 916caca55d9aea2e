-- Log lines of attempts.

CREATE TABLE task_logs (
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    level TEXT NOT NULL,
    logger TEXT NOT NULL,
    message TEXT NOT NULL,
    fields TEXT,
    PRIMARY KEY (task_id, lease, sequence),
    CONSTRAINT at_form CHECK (at IS NULL OR at IS strftime('%Y-%m-%d %H:%M:%f', at))
);

CREATE INDEX task_logs_at ON task_logs (at);
