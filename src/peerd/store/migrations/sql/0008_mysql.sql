-- Answers of requests that carry an idempotency key.

CREATE TABLE IF NOT EXISTS idempotency_keys (
    id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token BIGINT NOT NULL,
    answer LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    INDEX idempotency_keys_created (created_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
