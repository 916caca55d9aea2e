-- Alerts: which are on, and which were raised lately.

CREATE TABLE alerts (
    id BIGSERIAL NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" DEFAULT '' NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    slot TEXT COLLATE "C",
    pid INTEGER,
    text TEXT NOT NULL,
    data TEXT,
    times BIGINT DEFAULT '1' NOT NULL,
    raised_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    on_until TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    open_key TEXT COLLATE "C",
    PRIMARY KEY (id)
);

CREATE INDEX alerts_on ON alerts (on_until) WHERE on_until IS NOT NULL;
CREATE INDEX alerts_seen ON alerts (last_seen_at);
CREATE INDEX alerts_subject ON alerts (kind, subject, last_seen_at);
CREATE UNIQUE INDEX alerts_open ON alerts (open_key);
