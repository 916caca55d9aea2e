-- Bulk actions: one action on all tasks of a filter.

CREATE TABLE bulk_actions (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL,
    arguments TEXT NOT NULL,
    filter TEXT NOT NULL,
    highest_id BIGINT NOT NULL,
    as_of TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    most BIGINT,
    state TEXT DEFAULT 'counting' NOT NULL,
    matched BIGINT DEFAULT '0' NOT NULL,
    at_least BOOLEAN DEFAULT 0 NOT NULL,
    examined BIGINT DEFAULT '0' NOT NULL,
    done BIGINT DEFAULT '0' NOT NULL,
    skipped BIGINT DEFAULT '0' NOT NULL,
    failed BIGINT DEFAULT '0' NOT NULL,
    errors TEXT,
    place TEXT,
    postponed TEXT,
    next_at TEXT,
    error TEXT,
    created_by TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    started_at TEXT,
    updated_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    finished_at TEXT,
    CONSTRAINT state_known CHECK (state IN ('counting', 'running', 'paused', 'canceled', 'done', 'failed')),
    CONSTRAINT as_of_form CHECK (as_of IS NULL OR as_of IS strftime('%Y-%m-%d %H:%M:%f', as_of)),
    CONSTRAINT next_at_form CHECK (next_at IS NULL OR next_at IS strftime('%Y-%m-%d %H:%M:%f', next_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT started_at_form CHECK (started_at IS NULL OR started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT updated_at_form CHECK (updated_at IS NULL OR updated_at IS strftime('%Y-%m-%d %H:%M:%f', updated_at)),
    CONSTRAINT finished_at_form CHECK (finished_at IS NULL OR finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);

CREATE INDEX bulk_actions_state ON bulk_actions (state, updated_at);
