-- Requests to nodes, and schedules that are created at run time.

CREATE TABLE node_requests (
    id BIGSERIAL NOT NULL,
    node_id INTEGER NOT NULL,
    incarnation TEXT COLLATE "C" NOT NULL,
    command TEXT COLLATE "C" NOT NULL,
    arguments TEXT NOT NULL,
    requested_by TEXT COLLATE "C",
    status TEXT COLLATE "C" DEFAULT 'waiting' NOT NULL,
    result TEXT,
    error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    taken_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE INDEX node_requests_created ON node_requests (created_at);

CREATE INDEX node_requests_status ON node_requests (incarnation, status);

CREATE TABLE stored_schedules (
    name TEXT COLLATE "C" NOT NULL,
    definition TEXT NOT NULL,
    created_by TEXT COLLATE "C",
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);
