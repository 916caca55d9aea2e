-- Requests to nodes, and schedules that are created at run time.

CREATE TABLE node_requests (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    node_id INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    command TEXT NOT NULL,
    arguments TEXT NOT NULL,
    requested_by TEXT,
    status TEXT DEFAULT 'waiting' NOT NULL,
    result TEXT,
    error TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    expires_at TEXT,
    taken_at TEXT,
    finished_at TEXT,
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT expires_at_form CHECK (expires_at IS NULL OR expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT taken_at_form CHECK (taken_at IS NULL OR taken_at IS strftime('%Y-%m-%d %H:%M:%f', taken_at)),
    CONSTRAINT finished_at_form CHECK (finished_at IS NULL OR finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);

CREATE INDEX node_requests_created ON node_requests (created_at);

CREATE INDEX node_requests_status ON node_requests (incarnation, status);

CREATE TABLE stored_schedules (
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    created_by TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);
