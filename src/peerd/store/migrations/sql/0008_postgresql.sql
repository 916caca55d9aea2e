-- Answers of requests that carry an idempotency key.

CREATE TABLE idempotency_keys (
    id TEXT COLLATE "C" NOT NULL,
    request TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    answer TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);
