-- Bulk actions: one action on all tasks of a filter.

CREATE TABLE bulk_actions (
    id BIGSERIAL NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    arguments TEXT NOT NULL,
    filter TEXT NOT NULL,
    highest_id BIGINT NOT NULL,
    as_of TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    most BIGINT,
    state TEXT DEFAULT 'counting' NOT NULL,
    matched BIGINT DEFAULT '0' NOT NULL,
    at_least BOOLEAN DEFAULT false NOT NULL,
    examined BIGINT DEFAULT '0' NOT NULL,
    done BIGINT DEFAULT '0' NOT NULL,
    skipped BIGINT DEFAULT '0' NOT NULL,
    failed BIGINT DEFAULT '0' NOT NULL,
    errors TEXT,
    place TEXT,
    postponed TEXT,
    next_at TIMESTAMP WITH TIME ZONE,
    error TEXT,
    created_by TEXT COLLATE "C",
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    CONSTRAINT state_known CHECK (state IN ('counting', 'running', 'paused', 'canceled', 'done', 'failed'))
);

CREATE INDEX bulk_actions_state ON bulk_actions (state, updated_at);
