-- The first tables. docs/schema.md says what each is for.
-- A table is made whole or not at all, and what was cut off in the middle can be run again: DDL here is not undone.

CREATE TABLE IF NOT EXISTS tasks (
    id BIGINT NOT NULL AUTO_INCREMENT,
    queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    body LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    body_bytes LONGBLOB,
    status ENUM('scheduled','pending','working','done','failure','dead','waiting','canceled','buried') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'pending',
    priority BIGINT NOT NULL DEFAULT '10',
    attempts INTEGER NOT NULL DEFAULT '0',
    max_attempts INTEGER,
    crashes INTEGER NOT NULL DEFAULT '0',
    node_id INTEGER,
    start_at TIMESTAMP(6) NULL,
    finish_at TIMESTAMP(6) NULL,
    timeout DOUBLE,
    unique_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    lease BIGINT NOT NULL DEFAULT '0',
    claim_token BIGINT,
    worker_node_id INTEGER,
    process_id BIGINT,
    worker_started_at TIMESTAMP(6) NULL,
    checked_at TIMESTAMP(6) NULL,
    progress DOUBLE,
    progress_note VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    finished_at TIMESTAMP(6) NULL,
    trace_context VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    updated_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6),
    lane INTEGER GENERATED ALWAYS AS (CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END) STORED,
    claim_rank BIGINT GENERATED ALWAYS AS (-priority) STORED,
    due_at TIMESTAMP(6) GENERATED ALWAYS AS (COALESCE(start_at, created_at)) STORED,
    closing_at TIMESTAMP(6) GENERATED ALWAYS AS (CASE WHEN status = 'pending' THEN finish_at WHEN status IN ('done', 'dead', 'canceled') THEN COALESCE(finished_at, updated_at) END) STORED,
    PRIMARY KEY (id),
    CONSTRAINT queue_length CHECK (length(queue) BETWEEN 1 AND 200),
    CONSTRAINT priority_range CHECK (priority >= -9223372036854775807),
    KEY tasks_claim (status, queue, lane, claim_rank, attempts, due_at, id),
    KEY tasks_due (status, due_at),
    KEY tasks_closing (status, closing_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS attempts (
    id BIGINT NOT NULL AUTO_INCREMENT,
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    number INTEGER NOT NULL,
    node_id INTEGER,
    process_id BIGINT,
    started_at TIMESTAMP(6) NULL,
    ended_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    outcome VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    traceback LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    cause VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id),
    CONSTRAINT attempts_claim UNIQUE (task_id, lease)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS nodes (
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    incarnation VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    address VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    zone VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    version VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    active BOOL NOT NULL DEFAULT false,
    draining BOOL NOT NULL DEFAULT false,
    started_at TIMESTAMP(6) NULL,
    checked_at TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    CONSTRAINT nodes_name UNIQUE (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS processes (
    id BIGINT NOT NULL AUTO_INCREMENT,
    node_id INTEGER NOT NULL,
    incarnation VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    slot VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    `role` VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    pid INTEGER NOT NULL,
    started_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    checked_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    ended_at TIMESTAMP(6) NULL,
    cause VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id),
    KEY processes_node (node_id, ended_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS queues (
    name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    paused BOOL NOT NULL DEFAULT false,
    paused_until TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    updated_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS unique_keys (
    queue VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    unique_key VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    task_id BIGINT,
    token BIGINT NOT NULL,
    scope ENUM('unfinished','period','forever') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    expires_at TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (queue, unique_key),
    KEY unique_keys_expires (expires_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
