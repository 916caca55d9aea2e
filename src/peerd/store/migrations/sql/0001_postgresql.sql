-- The first tables. docs/schema.md says what each is for.

CREATE TABLE tasks (
    id BIGSERIAL NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" DEFAULT '' NOT NULL,
    body TEXT,
    body_bytes BYTEA,
    status TEXT DEFAULT 'pending' NOT NULL,
    priority BIGINT DEFAULT '10' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    crashes INTEGER DEFAULT '0' NOT NULL,
    node_id INTEGER,
    start_at TIMESTAMP WITH TIME ZONE,
    finish_at TIMESTAMP WITH TIME ZONE,
    timeout DOUBLE PRECISION,
    unique_key TEXT COLLATE "C",
    lease BIGINT DEFAULT '0' NOT NULL,
    claim_token BIGINT,
    worker_node_id INTEGER,
    process_id BIGINT,
    worker_started_at TIMESTAMP WITH TIME ZONE,
    checked_at TIMESTAMP WITH TIME ZONE,
    progress DOUBLE PRECISION,
    progress_note TEXT,
    result TEXT,
    error TEXT,
    finished_at TIMESTAMP WITH TIME ZONE,
    trace_context TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    lane INTEGER GENERATED ALWAYS AS (CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END) STORED,
    claim_rank BIGINT GENERATED ALWAYS AS (-priority) STORED,
    due_at TIMESTAMP WITH TIME ZONE GENERATED ALWAYS AS (COALESCE(start_at, created_at)) STORED,
    closing_at TIMESTAMP WITH TIME ZONE GENERATED ALWAYS AS (CASE WHEN status = 'pending' THEN finish_at WHEN status IN ('done', 'dead', 'canceled') THEN COALESCE(finished_at, updated_at) END) STORED,
    PRIMARY KEY (id),
    CONSTRAINT status_known CHECK (status IN ('scheduled', 'pending', 'working', 'done', 'failure', 'dead', 'waiting', 'canceled', 'buried')),
    CONSTRAINT queue_length CHECK (length(queue) BETWEEN 1 AND 200),
    CONSTRAINT priority_range CHECK (priority >= -9223372036854775807)
)
 WITH (fillfactor = 80);

CREATE INDEX tasks_working ON tasks (process_id) WHERE status = 'working';

CREATE INDEX tasks_due ON tasks (status, due_at) WHERE status IN ('scheduled', 'failure');

CREATE INDEX tasks_ahead ON tasks (start_at) WHERE status = 'pending' AND start_at IS NOT NULL;

CREATE INDEX tasks_claim ON tasks (queue, lane, claim_rank, attempts, due_at, id) WHERE status = 'pending';

CREATE INDEX tasks_closing ON tasks (status, closing_at) WHERE closing_at IS NOT NULL;

CREATE TABLE attempts (
    id BIGSERIAL NOT NULL,
    task_id BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    number INTEGER NOT NULL,
    node_id INTEGER,
    process_id BIGINT,
    started_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    error TEXT,
    traceback TEXT,
    cause TEXT,
    PRIMARY KEY (id),
    CONSTRAINT attempts_claim UNIQUE (task_id, lease)
);

CREATE TABLE nodes (
    id SERIAL NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    incarnation TEXT COLLATE "C",
    address TEXT,
    zone TEXT,
    version TEXT,
    active BOOLEAN DEFAULT false NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    checked_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT nodes_name UNIQUE (name)
);

CREATE TABLE processes (
    id BIGSERIAL NOT NULL,
    node_id INTEGER NOT NULL,
    incarnation TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    slot TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    pid INTEGER NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    checked_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    cause TEXT,
    PRIMARY KEY (id)
);

CREATE INDEX processes_node ON processes (node_id, ended_at);

CREATE TABLE queues (
    name TEXT COLLATE "C" NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    paused_until TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE unique_keys (
    queue TEXT COLLATE "C" NOT NULL,
    unique_key TEXT COLLATE "C" NOT NULL,
    task_id BIGINT,
    token BIGINT NOT NULL,
    scope TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (queue, unique_key),
    CONSTRAINT scope_known CHECK (scope IN ('unfinished', 'period', 'forever'))
);

CREATE INDEX unique_keys_expires ON unique_keys (expires_at);
