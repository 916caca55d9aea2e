-- Log lines of attempts.

CREATE TABLE IF NOT EXISTS task_logs (
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    level VARCHAR(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    logger VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fields LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (task_id, lease, sequence),
    INDEX task_logs_at (at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
