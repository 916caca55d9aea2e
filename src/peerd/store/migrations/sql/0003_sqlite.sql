-- Schedules: their clocks, and their runs.

CREATE TABLE schedules (
    name TEXT NOT NULL,
    node_id INTEGER NOT NULL,
    type TEXT NOT NULL,
    definition TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    incarnation TEXT,
    disabled BOOLEAN DEFAULT 0 NOT NULL,
    turn BIGINT DEFAULT '0' NOT NULL,
    anchor_at TEXT,
    next_at TEXT,
    last_at TEXT,
    error TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (name, node_id),
    CONSTRAINT anchor_at_form CHECK (anchor_at IS NULL OR anchor_at IS strftime('%Y-%m-%d %H:%M:%f', anchor_at)),
    CONSTRAINT next_at_form CHECK (next_at IS NULL OR next_at IS strftime('%Y-%m-%d %H:%M:%f', next_at)),
    CONSTRAINT last_at_form CHECK (last_at IS NULL OR last_at IS strftime('%Y-%m-%d %H:%M:%f', last_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at))
);

CREATE TABLE schedule_runs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    schedule TEXT NOT NULL,
    tick_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    origin TEXT DEFAULT 'hand' NOT NULL,
    number INTEGER DEFAULT '1' NOT NULL,
    args TEXT,
    status TEXT DEFAULT 'waiting' NOT NULL,
    node_id INTEGER,
    incarnation TEXT,
    slot TEXT,
    pid INTEGER,
    task_id BIGINT,
    error TEXT,
    traceback TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    CONSTRAINT tick_at_form CHECK (tick_at IS NULL OR tick_at IS strftime('%Y-%m-%d %H:%M:%f', tick_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT finished_at_form CHECK (finished_at IS NULL OR finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);

CREATE INDEX schedule_runs_finished ON schedule_runs (finished_at);

CREATE INDEX schedule_runs_schedule ON schedule_runs (schedule, id);

CREATE INDEX schedule_runs_status ON schedule_runs (status, schedule);
