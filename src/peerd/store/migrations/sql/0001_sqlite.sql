-- The first tables. docs/schema.md says what each is for.

CREATE TABLE tasks (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    body TEXT,
    body_bytes BLOB,
    status TEXT DEFAULT 'pending' NOT NULL,
    priority BIGINT DEFAULT '10' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    crashes INTEGER DEFAULT '0' NOT NULL,
    node_id INTEGER,
    start_at TEXT,
    finish_at TEXT,
    timeout DOUBLE,
    unique_key TEXT,
    lease BIGINT DEFAULT '0' NOT NULL,
    claim_token BIGINT,
    worker_node_id INTEGER,
    process_id BIGINT,
    worker_started_at TEXT,
    checked_at TEXT,
    progress DOUBLE,
    progress_note TEXT,
    result TEXT,
    error TEXT,
    finished_at TEXT,
    trace_context TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    lane INTEGER GENERATED ALWAYS AS (CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END) STORED,
    claim_rank BIGINT GENERATED ALWAYS AS (-priority) STORED,
    due_at TEXT GENERATED ALWAYS AS (COALESCE(start_at, created_at)) STORED,
    closing_at TEXT GENERATED ALWAYS AS (CASE WHEN status = 'pending' THEN finish_at WHEN status IN ('done', 'dead', 'canceled') THEN COALESCE(finished_at, updated_at) END) STORED,
    CONSTRAINT status_known CHECK (status IN ('scheduled', 'pending', 'working', 'done', 'failure', 'dead', 'waiting', 'canceled', 'buried')),
    CONSTRAINT queue_length CHECK (length(queue) BETWEEN 1 AND 200),
    CONSTRAINT priority_range CHECK (priority >= -9223372036854775807),
    CONSTRAINT start_at_form CHECK (start_at IS NULL OR start_at IS strftime('%Y-%m-%d %H:%M:%f', start_at)),
    CONSTRAINT finish_at_form CHECK (finish_at IS NULL OR finish_at IS strftime('%Y-%m-%d %H:%M:%f', finish_at)),
    CONSTRAINT worker_started_at_form CHECK (worker_started_at IS NULL OR worker_started_at IS strftime('%Y-%m-%d %H:%M:%f', worker_started_at)),
    CONSTRAINT checked_at_form CHECK (checked_at IS NULL OR checked_at IS strftime('%Y-%m-%d %H:%M:%f', checked_at)),
    CONSTRAINT finished_at_form CHECK (finished_at IS NULL OR finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at))
);

CREATE INDEX tasks_working ON tasks (process_id) WHERE status = 'working';

CREATE INDEX tasks_due ON tasks (status, due_at) WHERE status IN ('scheduled', 'failure');

CREATE INDEX tasks_ahead ON tasks (start_at) WHERE status = 'pending' AND start_at IS NOT NULL;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending';

CREATE INDEX tasks_closing ON tasks (status, closing_at) WHERE closing_at IS NOT NULL;

CREATE TABLE attempts (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    number INTEGER NOT NULL,
    node_id INTEGER,
    process_id BIGINT,
    started_at TEXT,
    ended_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT,
    traceback TEXT,
    cause TEXT,
    CONSTRAINT attempts_claim UNIQUE (task_id, lease),
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT ended_at_form CHECK (ended_at IS NULL OR ended_at IS strftime('%Y-%m-%d %H:%M:%f', ended_at))
);

CREATE TABLE nodes (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    incarnation TEXT,
    address TEXT,
    zone TEXT,
    version TEXT,
    active BOOLEAN DEFAULT 0 NOT NULL,
    draining BOOLEAN DEFAULT 0 NOT NULL,
    started_at TEXT,
    checked_at TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    CONSTRAINT nodes_name UNIQUE (name),
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT checked_at_form CHECK (checked_at IS NULL OR checked_at IS strftime('%Y-%m-%d %H:%M:%f', checked_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE TABLE processes (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    node_id INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    kind TEXT NOT NULL,
    slot TEXT NOT NULL,
    role TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    checked_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    ended_at TEXT,
    cause TEXT,
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT checked_at_form CHECK (checked_at IS NULL OR checked_at IS strftime('%Y-%m-%d %H:%M:%f', checked_at)),
    CONSTRAINT ended_at_form CHECK (ended_at IS NULL OR ended_at IS strftime('%Y-%m-%d %H:%M:%f', ended_at))
);

CREATE INDEX processes_node ON processes (node_id, ended_at);

CREATE TABLE queues (
    name TEXT NOT NULL,
    paused BOOLEAN DEFAULT 0 NOT NULL,
    paused_until TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT paused_until_form CHECK (paused_until IS NULL OR paused_until IS strftime('%Y-%m-%d %H:%M:%f', paused_until)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at))
);

CREATE TABLE unique_keys (
    queue TEXT NOT NULL,
    unique_key TEXT NOT NULL,
    task_id BIGINT,
    token BIGINT NOT NULL,
    scope TEXT NOT NULL,
    expires_at TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (queue, unique_key),
    CONSTRAINT scope_known CHECK (scope IN ('unfinished', 'period', 'forever')),
    CONSTRAINT expires_at_form CHECK (expires_at IS NULL OR expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE INDEX unique_keys_expires ON unique_keys (expires_at);
