-- Schedules: their clocks, and their runs.

CREATE TABLE schedules (
    name TEXT COLLATE "C" NOT NULL,
    node_id INTEGER NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    definition TEXT NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    incarnation TEXT COLLATE "C",
    disabled BOOLEAN DEFAULT false NOT NULL,
    turn BIGINT DEFAULT '0' NOT NULL,
    anchor_at TIMESTAMP WITH TIME ZONE,
    next_at TIMESTAMP WITH TIME ZONE,
    last_at TIMESTAMP WITH TIME ZONE,
    error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name, node_id)
);

CREATE TABLE schedule_runs (
    id BIGSERIAL NOT NULL,
    schedule TEXT COLLATE "C" NOT NULL,
    tick_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    origin TEXT COLLATE "C" DEFAULT 'hand' NOT NULL,
    number INTEGER DEFAULT '1' NOT NULL,
    args TEXT,
    status TEXT COLLATE "C" DEFAULT 'waiting' NOT NULL,
    node_id INTEGER,
    incarnation TEXT COLLATE "C",
    slot TEXT COLLATE "C",
    pid INTEGER,
    task_id BIGINT,
    error TEXT,
    traceback TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE INDEX schedule_runs_finished ON schedule_runs (finished_at);

CREATE INDEX schedule_runs_schedule ON schedule_runs (schedule, id);

CREATE INDEX schedule_runs_status ON schedule_runs (status, schedule);
