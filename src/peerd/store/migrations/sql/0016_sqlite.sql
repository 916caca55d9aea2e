-- Files that survive their servers: classes, buckets, disks, versions, copies, checks, uploads and access keys.

CREATE TABLE file_cluster (
    id INTEGER NOT NULL,
    identity TEXT NOT NULL,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE TABLE file_classes (
    name TEXT NOT NULL,
    copies INTEGER DEFAULT '2' NOT NULL,
    durable INTEGER DEFAULT '1' NOT NULL,
    zones INTEGER DEFAULT '1' NOT NULL,
    object_copies INTEGER,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE TABLE file_buckets (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    class_name TEXT NOT NULL,
    quota BIGINT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE UNIQUE INDEX file_buckets_name ON file_buckets (name);

CREATE TABLE file_usage (
    bucket_id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    files BIGINT DEFAULT '0' NOT NULL,
    bytes BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (bucket_id, part)
);

CREATE TABLE disks (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL,
    kind TEXT DEFAULT 'folder' NOT NULL,
    state TEXT DEFAULT 'active' NOT NULL,
    node_id INTEGER,
    path TEXT NOT NULL,
    url TEXT,
    size BIGINT DEFAULT '0' NOT NULL,
    free BIGINT DEFAULT '0' NOT NULL,
    reserve BIGINT DEFAULT '0' NOT NULL,
    problem TEXT,
    failed_until TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    seen_at TEXT,
    missing_at TEXT,
    verified_since TEXT,
    walked_for TEXT,
    walked_to BIGINT,
    scrubbed_to BIGINT,
    scrub_started_at TEXT,
    grace DOUBLE,
    CONSTRAINT kind_known CHECK (kind IN ('folder', 's3')),
    CONSTRAINT state_known CHECK (state IN ('active', 'readonly', 'drain', 'lost')),
    CONSTRAINT failed_until_form CHECK (failed_until IS NULL OR failed_until IS strftime('%Y-%m-%d %H:%M:%f', failed_until)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT seen_at_form CHECK (seen_at IS NULL OR seen_at IS strftime('%Y-%m-%d %H:%M:%f', seen_at)),
    CONSTRAINT missing_at_form CHECK (missing_at IS NULL OR missing_at IS strftime('%Y-%m-%d %H:%M:%f', missing_at)),
    CONSTRAINT verified_since_form CHECK (verified_since IS NULL OR verified_since IS strftime('%Y-%m-%d %H:%M:%f', verified_since)),
    CONSTRAINT scrub_started_at_form CHECK (scrub_started_at IS NULL OR scrub_started_at IS strftime('%Y-%m-%d %H:%M:%f', scrub_started_at))
);

CREATE UNIQUE INDEX disks_identity ON disks (identity);

CREATE TABLE disk_counts (
    disk_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    copies BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    examined BIGINT NOT NULL,
    counted_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (disk_id, state),
    CONSTRAINT state_known CHECK (state IN ('planned', 'stored', 'bad', 'removing')),
    CONSTRAINT counted_at_form CHECK (counted_at IS NULL OR counted_at IS strftime('%Y-%m-%d %H:%M:%f', counted_at))
);

CREATE TABLE files (
    id BIGINT NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key TEXT NOT NULL,
    version BIGINT DEFAULT '0' NOT NULL,
    state TEXT NOT NULL,
    is_current SMALLINT,
    class_name TEXT NOT NULL,
    size BIGINT NOT NULL,
    blake3 TEXT NOT NULL,
    etag TEXT,
    content_type TEXT,
    metadata TEXT,
    headers TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    expires_at TEXT,
    deleted_at TEXT,
    PRIMARY KEY (id),
    CONSTRAINT state_known CHECK (state IN ('staged', 'stored', 'deleted')),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT expires_at_form CHECK (expires_at IS NULL OR expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT deleted_at_form CHECK (deleted_at IS NULL OR deleted_at IS strftime('%Y-%m-%d %H:%M:%f', deleted_at))
);

CREATE UNIQUE INDEX files_current ON files (bucket_id, is_current, file_key);
CREATE INDEX files_expiring ON files (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE file_chunks (
    file_id BIGINT NOT NULL,
    chunk_size BIGINT NOT NULL,
    hashes BLOB NOT NULL,
    PRIMARY KEY (file_id)
);

CREATE TABLE file_copies (
    file_id BIGINT NOT NULL,
    disk_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    size BIGINT NOT NULL,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    verified_at TEXT,
    task_id BIGINT,
    PRIMARY KEY (file_id, disk_id),
    CONSTRAINT state_known CHECK (state IN ('planned', 'stored', 'bad', 'removing')),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT verified_at_form CHECK (verified_at IS NULL OR verified_at IS strftime('%Y-%m-%d %H:%M:%f', verified_at))
);

CREATE INDEX file_copies_disk ON file_copies (disk_id, state, file_id, size);

CREATE TABLE file_checks (
    file_id BIGINT NOT NULL,
    danger SMALLINT NOT NULL,
    due_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL,
    health TEXT,
    blocked TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    requested_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (file_id),
    CONSTRAINT due_at_form CHECK (due_at IS NULL OR due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT requested_at_form CHECK (requested_at IS NULL OR requested_at IS strftime('%Y-%m-%d %H:%M:%f', requested_at))
);

CREATE INDEX file_checks_due ON file_checks (danger, due_at);
CREATE INDEX file_checks_listed ON file_checks (danger, health, created_at, file_id);

CREATE TABLE file_uploads (
    id TEXT NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key TEXT NOT NULL,
    disk_id INTEGER NOT NULL,
    class_name TEXT NOT NULL,
    content_type TEXT,
    metadata TEXT,
    headers TEXT,
    created_by TEXT,
    content_id BIGINT,
    size BIGINT,
    received BIGINT DEFAULT '0' NOT NULL,
    source TEXT,
    expires_in DOUBLE,
    put_condition TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    touched_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    aborted_at TEXT,
    PRIMARY KEY (id),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT touched_at_form CHECK (touched_at IS NULL OR touched_at IS strftime('%Y-%m-%d %H:%M:%f', touched_at)),
    CONSTRAINT aborted_at_form CHECK (aborted_at IS NULL OR aborted_at IS strftime('%Y-%m-%d %H:%M:%f', aborted_at))
);

CREATE INDEX file_uploads_key ON file_uploads (bucket_id, file_key);
CREATE INDEX file_uploads_touched ON file_uploads (touched_at);
CREATE INDEX file_uploads_content ON file_uploads (content_id) WHERE content_id IS NOT NULL;
CREATE INDEX file_uploads_aborted ON file_uploads (aborted_at) WHERE aborted_at IS NOT NULL;

CREATE TABLE file_upload_parts (
    upload_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    content_id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    etag TEXT NOT NULL,
    checksum TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (upload_id, number),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE INDEX file_upload_parts_content ON file_upload_parts (content_id);

CREATE TABLE file_completed_uploads (
    id TEXT NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key TEXT NOT NULL,
    etag TEXT NOT NULL,
    completed_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT completed_at_form CHECK (completed_at IS NULL OR completed_at IS strftime('%Y-%m-%d %H:%M:%f', completed_at))
);

CREATE INDEX file_completed_uploads_time ON file_completed_uploads (completed_at);

CREATE TABLE file_access_keys (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    rights TEXT NOT NULL,
    scopes TEXT,
    created_by TEXT,
    created_at TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
    expires_at TEXT,
    revoked_at TEXT,
    last_used_at TEXT,
    PRIMARY KEY (id),
    CONSTRAINT rights_known CHECK (rights IN ('read', 'write', 'read-write')),
    CONSTRAINT created_at_form CHECK (created_at IS NULL OR created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at)),
    CONSTRAINT expires_at_form CHECK (expires_at IS NULL OR expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT revoked_at_form CHECK (revoked_at IS NULL OR revoked_at IS strftime('%Y-%m-%d %H:%M:%f', revoked_at)),
    CONSTRAINT last_used_at_form CHECK (last_used_at IS NULL OR last_used_at IS strftime('%Y-%m-%d %H:%M:%f', last_used_at))
);

ALTER TABLE peerd_tokens ADD COLUMN file_scopes TEXT;
