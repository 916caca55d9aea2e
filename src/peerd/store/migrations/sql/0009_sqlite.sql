-- Users, tokens, sessions, failed logins, and the audit log.

CREATE TABLE peerd_users (
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    password_hash TEXT,
    disabled BOOLEAN DEFAULT 0 NOT NULL,
    logged_in_at TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT role_known CHECK (role IN ('viewer', 'operator', 'admin')),
    CONSTRAINT logged_in_at_form CHECK (logged_in_at IS NULL OR logged_in_at IS strftime('%Y-%m-%d %H:%M:%f', logged_in_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at))
);

CREATE TABLE peerd_tokens (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL,
    rights TEXT NOT NULL,
    queues TEXT,
    expires_at TEXT,
    revoked_at TEXT,
    last_used_at TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    CONSTRAINT peerd_tokens_prefix UNIQUE (prefix),
    CONSTRAINT expires_at_form CHECK (expires_at IS NULL OR expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT revoked_at_form CHECK (revoked_at IS NULL OR revoked_at IS strftime('%Y-%m-%d %H:%M:%f', revoked_at)),
    CONSTRAINT last_used_at_form CHECK (last_used_at IS NULL OR last_used_at IS strftime('%Y-%m-%d %H:%M:%f', last_used_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE TABLE peerd_sessions (
    id TEXT NOT NULL,
    user_name TEXT NOT NULL,
    address TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    seen_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT seen_at_form CHECK (seen_at IS NULL OR seen_at IS strftime('%Y-%m-%d %H:%M:%f', seen_at))
);

CREATE INDEX peerd_sessions_created ON peerd_sessions (created_at);
CREATE INDEX peerd_sessions_user ON peerd_sessions (user_name);

CREATE TABLE peerd_login_failures (
    id TEXT NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    began_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    succeeded_at TEXT,
    PRIMARY KEY (id),
    CONSTRAINT began_at_form CHECK (began_at IS NULL OR began_at IS strftime('%Y-%m-%d %H:%M:%f', began_at)),
    CONSTRAINT succeeded_at_form CHECK (succeeded_at IS NULL OR succeeded_at IS strftime('%Y-%m-%d %H:%M:%f', succeeded_at))
);

CREATE INDEX peerd_login_failures_began ON peerd_login_failures (began_at);

CREATE TABLE peerd_audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    actor_kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT,
    way TEXT NOT NULL,
    operation TEXT NOT NULL,
    target_kind TEXT,
    target TEXT,
    arguments TEXT,
    state_before TEXT,
    state_after TEXT,
    outcome TEXT NOT NULL,
    problem TEXT,
    CONSTRAINT at_form CHECK (at IS NULL OR at IS strftime('%Y-%m-%d %H:%M:%f', at))
);

CREATE INDEX peerd_audit_actor ON peerd_audit (actor, id);
CREATE INDEX peerd_audit_at ON peerd_audit (at);

CREATE INDEX peerd_audit_operation ON peerd_audit (operation, id);
CREATE INDEX peerd_audit_target ON peerd_audit (target, id);
