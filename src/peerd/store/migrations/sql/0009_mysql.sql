-- Users, tokens, sessions, failed logins, and the audit log.
-- A table is made whole or not at all, and what was cut off in the middle can be run again: DDL here is not undone.

CREATE TABLE IF NOT EXISTS peerd_users (
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    `role` ENUM('viewer','operator','admin') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    password_hash VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    disabled BOOL NOT NULL DEFAULT false,
    logged_in_at TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    updated_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS peerd_tokens (
    id BIGINT NOT NULL AUTO_INCREMENT,
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    prefix VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    rights LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    queues LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    expires_at TIMESTAMP(6) NULL,
    revoked_at TIMESTAMP(6) NULL,
    last_used_at TIMESTAMP(6) NULL,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    CONSTRAINT peerd_tokens_prefix UNIQUE (prefix)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS peerd_sessions (
    id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    address VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    seen_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    PRIMARY KEY (id),
    INDEX peerd_sessions_created (created_at),
    INDEX peerd_sessions_user (user_name)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS peerd_login_failures (
    id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    failures INTEGER NOT NULL DEFAULT '0',
    began_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    succeeded_at TIMESTAMP(6) NULL,
    PRIMARY KEY (id),
    INDEX peerd_login_failures_began (began_at)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS peerd_audit (
    id BIGINT NOT NULL AUTO_INCREMENT,
    at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    actor_kind VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    actor VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    address VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    way VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    operation VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target_kind VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin,
    target VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    arguments LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    state_before LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    state_after LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    outcome VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    problem LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id),
    INDEX peerd_audit_actor (actor, id),
    INDEX peerd_audit_at (at),
    INDEX peerd_audit_operation (operation, id),
    INDEX peerd_audit_target (target, id)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
