-- Answers of requests that carry an idempotency key.

CREATE TABLE idempotency_keys (
    id TEXT NOT NULL,
    request TEXT NOT NULL,
    token BIGINT NOT NULL,
    answer TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);
