-- Requests to nodes, and schedules that are created at run time.

CREATE TABLE IF NOT EXISTS node_requests (
    id BIGINT NOT NULL AUTO_INCREMENT,
    node_id INTEGER NOT NULL,
    incarnation VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    command VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    arguments LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    requested_by VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'waiting',
    result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    expires_at TIMESTAMP(6) NULL,
    taken_at TIMESTAMP(6) NULL,
    finished_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id),
    INDEX node_requests_created (created_at),
    INDEX node_requests_status (incarnation, status)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS stored_schedules (
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    definition LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_by VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
