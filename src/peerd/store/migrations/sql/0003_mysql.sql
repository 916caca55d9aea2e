-- Schedules: their clocks, and their runs.
-- A table is made whole or not at all, and what was cut off in the middle can be run again: DDL here is not undone.

CREATE TABLE IF NOT EXISTS schedules (
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    node_id INTEGER NOT NULL,
    type VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    definition LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fingerprint VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    incarnation VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    disabled BOOL NOT NULL DEFAULT false,
    turn BIGINT NOT NULL DEFAULT '0',
    anchor_at TIMESTAMP(6) NULL,
    next_at TIMESTAMP(6) NULL,
    last_at TIMESTAMP(6) NULL,
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    updated_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6),
    PRIMARY KEY (name, node_id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS schedule_runs (
    id BIGINT NOT NULL AUTO_INCREMENT,
    schedule VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    tick_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    origin VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'hand',
    number INTEGER NOT NULL DEFAULT '1',
    args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'waiting',
    node_id INTEGER,
    incarnation VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    slot VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    pid INTEGER,
    task_id BIGINT,
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    traceback LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    started_at TIMESTAMP(6) NULL,
    finished_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id),
    KEY schedule_runs_finished (finished_at),
    KEY schedule_runs_schedule (schedule, id),
    KEY schedule_runs_status (status, schedule)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
