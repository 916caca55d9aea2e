-- Files that survive their servers: classes, buckets, disks, versions, copies, checks, uploads and access keys.

CREATE TABLE IF NOT EXISTS file_cluster (
    id INTEGER NOT NULL,
    identity VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_classes (
    name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    copies INTEGER NOT NULL DEFAULT '2',
    durable INTEGER NOT NULL DEFAULT '1',
    zones INTEGER NOT NULL DEFAULT '1',
    object_copies INTEGER,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_buckets (
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    class_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quota BIGINT,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    UNIQUE INDEX file_buckets_name (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_usage (
    bucket_id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    files BIGINT NOT NULL DEFAULT '0',
    bytes BIGINT NOT NULL DEFAULT '0',
    PRIMARY KEY (bucket_id, part)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS disks (
    id INTEGER NOT NULL AUTO_INCREMENT,
    identity VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind ENUM('folder','s3') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'folder',
    state ENUM('active','readonly','drain','lost') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'active',
    node_id INTEGER,
    path VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    url VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    size BIGINT NOT NULL DEFAULT '0',
    free BIGINT NOT NULL DEFAULT '0',
    reserve BIGINT NOT NULL DEFAULT '0',
    problem VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    failed_until TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    seen_at TIMESTAMP(6) NULL,
    missing_at TIMESTAMP(6) NULL,
    verified_since TIMESTAMP(6) NULL,
    walked_for VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin,
    walked_to BIGINT,
    scrubbed_to BIGINT,
    scrub_started_at TIMESTAMP(6) NULL,
    grace DOUBLE,
    PRIMARY KEY (id),
    UNIQUE INDEX disks_identity (identity)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS disk_counts (
    disk_id INTEGER NOT NULL,
    state ENUM('planned','stored','bad','removing') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    copies BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    examined BIGINT NOT NULL,
    counted_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (disk_id, state)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS files (
    id BIGINT NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARBINARY(1024) NOT NULL,
    version BIGINT NOT NULL DEFAULT '0',
    state ENUM('staged','stored','deleted') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    is_current SMALLINT,
    class_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    size BIGINT NOT NULL,
    blake3 VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    etag VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin,
    content_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    metadata LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    expires_at TIMESTAMP(6) NULL,
    deleted_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id),
    UNIQUE INDEX files_current (bucket_id, is_current, file_key),
    INDEX files_expiring (expires_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_chunks (
    file_id BIGINT NOT NULL,
    chunk_size BIGINT NOT NULL,
    hashes LONGBLOB NOT NULL,
    PRIMARY KEY (file_id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_copies (
    file_id BIGINT NOT NULL,
    disk_id INTEGER NOT NULL,
    state ENUM('planned','stored','bad','removing') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    size BIGINT NOT NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    verified_at TIMESTAMP(6) NULL,
    task_id BIGINT,
    PRIMARY KEY (file_id, disk_id),
    INDEX file_copies_disk (disk_id, state, file_id, size)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_checks (
    file_id BIGINT NOT NULL,
    danger SMALLINT NOT NULL,
    due_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    tries INTEGER NOT NULL DEFAULT '0',
    health VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin,
    blocked VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    requested_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (file_id),
    INDEX file_checks_due (danger, due_at),
    INDEX file_checks_listed (danger, health, created_at, file_id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_uploads (
    id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARBINARY(1024) NOT NULL,
    disk_id INTEGER NOT NULL,
    class_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    content_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    metadata LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_by VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    content_id BIGINT,
    size BIGINT,
    received BIGINT NOT NULL DEFAULT '0',
    source VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,
    expires_in DOUBLE,
    put_condition VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    touched_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    aborted_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id),
    INDEX file_uploads_key (bucket_id, file_key),
    INDEX file_uploads_touched (touched_at),
    INDEX file_uploads_content (content_id),
    INDEX file_uploads_aborted (aborted_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_upload_parts (
    upload_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    number INTEGER NOT NULL,
    content_id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    etag VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    checksum VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (upload_id, number),
    INDEX file_upload_parts_content (content_id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_completed_uploads (
    id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARBINARY(1024) NOT NULL,
    etag VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    completed_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    INDEX file_completed_uploads_time (completed_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS file_access_keys (
    id VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rights ENUM('read','write','read-write') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    scopes LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_by VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    expires_at TIMESTAMP(6) NULL,
    revoked_at TIMESTAMP(6) NULL,
    last_used_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE peerd_tokens ADD COLUMN file_scopes LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
