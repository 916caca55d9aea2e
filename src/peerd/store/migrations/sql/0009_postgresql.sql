-- Users, tokens, sessions, failed logins, and the audit log.

CREATE TABLE peerd_users (
    name TEXT COLLATE "C" NOT NULL,
    role TEXT NOT NULL,
    password_hash TEXT,
    disabled BOOLEAN DEFAULT false NOT NULL,
    logged_in_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT role_known CHECK (role IN ('viewer', 'operator', 'admin'))
);

CREATE TABLE peerd_tokens (
    id BIGSERIAL NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    rights TEXT NOT NULL,
    queues TEXT,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT peerd_tokens_prefix UNIQUE (prefix)
);

CREATE TABLE peerd_sessions (
    id TEXT COLLATE "C" NOT NULL,
    user_name TEXT COLLATE "C" NOT NULL,
    address TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX peerd_sessions_created ON peerd_sessions (created_at);
CREATE INDEX peerd_sessions_user ON peerd_sessions (user_name);

CREATE TABLE peerd_login_failures (
    id TEXT COLLATE "C" NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    began_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    succeeded_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE INDEX peerd_login_failures_began ON peerd_login_failures (began_at);

CREATE TABLE peerd_audit (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    actor_kind TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    address TEXT,
    way TEXT COLLATE "C" NOT NULL,
    operation TEXT COLLATE "C" NOT NULL,
    target_kind TEXT COLLATE "C",
    target TEXT COLLATE "C",
    arguments TEXT,
    state_before TEXT,
    state_after TEXT,
    outcome TEXT COLLATE "C" NOT NULL,
    problem TEXT,
    PRIMARY KEY (id)
);

CREATE INDEX peerd_audit_actor ON peerd_audit (actor, id);
CREATE INDEX peerd_audit_at ON peerd_audit (at);

CREATE INDEX peerd_audit_operation ON peerd_audit (operation, id);
CREATE INDEX peerd_audit_target ON peerd_audit (target, id);
