-- Alerts: which are on, and which were raised lately.

CREATE TABLE alerts (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    subject TEXT DEFAULT '' NOT NULL,
    node TEXT NOT NULL,
    slot TEXT,
    pid INTEGER,
    text TEXT NOT NULL,
    data TEXT,
    times BIGINT DEFAULT '1' NOT NULL,
    raised_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    last_seen_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    on_until TEXT,
    ended_at TEXT,
    open_key TEXT,
    CONSTRAINT raised_at_form CHECK (raised_at IS NULL OR raised_at IS strftime('%Y-%m-%d %H:%M:%f', raised_at)),
    CONSTRAINT last_seen_at_form CHECK (last_seen_at IS NULL OR last_seen_at IS strftime('%Y-%m-%d %H:%M:%f', last_seen_at)),
    CONSTRAINT on_until_form CHECK (on_until IS NULL OR on_until IS strftime('%Y-%m-%d %H:%M:%f', on_until)),
    CONSTRAINT ended_at_form CHECK (ended_at IS NULL OR ended_at IS strftime('%Y-%m-%d %H:%M:%f', ended_at))
);

CREATE INDEX alerts_on ON alerts (on_until) WHERE on_until IS NOT NULL;
CREATE INDEX alerts_seen ON alerts (last_seen_at);
CREATE INDEX alerts_subject ON alerts (kind, subject, last_seen_at);
CREATE UNIQUE INDEX alerts_open ON alerts (open_key);
