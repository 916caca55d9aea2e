-- Files that survive their servers: classes, buckets, disks, versions, copies, checks, uploads and access keys.

CREATE TABLE file_cluster (
    id INTEGER NOT NULL,
    identity TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE file_classes (
    name TEXT COLLATE "C" NOT NULL,
    copies INTEGER DEFAULT '2' NOT NULL,
    durable INTEGER DEFAULT '1' NOT NULL,
    zones INTEGER DEFAULT '1' NOT NULL,
    object_copies INTEGER,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE file_buckets (
    id SERIAL NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    class_name TEXT COLLATE "C" NOT NULL,
    quota BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
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
    id SERIAL NOT NULL,
    identity TEXT COLLATE "C" NOT NULL,
    kind TEXT DEFAULT 'folder' NOT NULL,
    state TEXT DEFAULT 'active' NOT NULL,
    node_id INTEGER,
    path TEXT NOT NULL,
    url TEXT,
    size BIGINT DEFAULT '0' NOT NULL,
    free BIGINT DEFAULT '0' NOT NULL,
    reserve BIGINT DEFAULT '0' NOT NULL,
    problem TEXT,
    failed_until TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE,
    missing_at TIMESTAMP WITH TIME ZONE,
    verified_since TIMESTAMP WITH TIME ZONE,
    walked_for TEXT COLLATE "C",
    walked_to BIGINT,
    scrubbed_to BIGINT,
    scrub_started_at TIMESTAMP WITH TIME ZONE,
    grace DOUBLE PRECISION,
    PRIMARY KEY (id),
    CONSTRAINT kind_known CHECK (kind IN ('folder', 's3')),
    CONSTRAINT state_known CHECK (state IN ('active', 'readonly', 'drain', 'lost'))
);

CREATE UNIQUE INDEX disks_identity ON disks (identity);

CREATE TABLE disk_counts (
    disk_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    copies BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    examined BIGINT NOT NULL,
    counted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (disk_id, state),
    CONSTRAINT state_known CHECK (state IN ('planned', 'stored', 'bad', 'removing'))
);

CREATE TABLE files (
    id BIGINT NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARCHAR COLLATE "C" NOT NULL,
    version BIGINT DEFAULT '0' NOT NULL,
    state TEXT NOT NULL,
    is_current SMALLINT,
    class_name TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    blake3 TEXT COLLATE "C" NOT NULL,
    etag TEXT COLLATE "C",
    content_type TEXT,
    metadata TEXT,
    headers TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    deleted_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    CONSTRAINT state_known CHECK (state IN ('staged', 'stored', 'deleted'))
);

CREATE UNIQUE INDEX files_current ON files (bucket_id, is_current, file_key);
CREATE INDEX files_expiring ON files (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE file_chunks (
    file_id BIGINT NOT NULL,
    chunk_size BIGINT NOT NULL,
    hashes BYTEA NOT NULL,
    PRIMARY KEY (file_id)
);

CREATE TABLE file_copies (
    file_id BIGINT NOT NULL,
    disk_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    size BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    verified_at TIMESTAMP WITH TIME ZONE,
    task_id BIGINT,
    PRIMARY KEY (file_id, disk_id),
    CONSTRAINT state_known CHECK (state IN ('planned', 'stored', 'bad', 'removing'))
);

CREATE INDEX file_copies_disk ON file_copies (disk_id, state, file_id, size);

CREATE TABLE file_checks (
    file_id BIGINT NOT NULL,
    danger SMALLINT NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL,
    health TEXT COLLATE "C",
    blocked TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    requested_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (file_id)
);

CREATE INDEX file_checks_due ON file_checks (danger, due_at);
CREATE INDEX file_checks_listed ON file_checks (danger, health, created_at, file_id);

CREATE TABLE file_uploads (
    id TEXT COLLATE "C" NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARCHAR COLLATE "C" NOT NULL,
    disk_id INTEGER NOT NULL,
    class_name TEXT COLLATE "C" NOT NULL,
    content_type TEXT,
    metadata TEXT,
    headers TEXT,
    created_by TEXT COLLATE "C",
    content_id BIGINT,
    size BIGINT,
    received BIGINT DEFAULT '0' NOT NULL,
    source TEXT COLLATE "C",
    expires_in DOUBLE PRECISION,
    put_condition TEXT COLLATE "C",
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    touched_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    aborted_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE INDEX file_uploads_key ON file_uploads (bucket_id, file_key);
CREATE INDEX file_uploads_touched ON file_uploads (touched_at);
CREATE INDEX file_uploads_content ON file_uploads (content_id) WHERE content_id IS NOT NULL;
CREATE INDEX file_uploads_aborted ON file_uploads (aborted_at) WHERE aborted_at IS NOT NULL;

CREATE TABLE file_upload_parts (
    upload_id TEXT COLLATE "C" NOT NULL,
    number INTEGER NOT NULL,
    content_id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    etag TEXT COLLATE "C" NOT NULL,
    checksum TEXT COLLATE "C",
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (upload_id, number)
);

CREATE INDEX file_upload_parts_content ON file_upload_parts (content_id);

CREATE TABLE file_completed_uploads (
    id TEXT COLLATE "C" NOT NULL,
    bucket_id INTEGER NOT NULL,
    file_key VARCHAR COLLATE "C" NOT NULL,
    etag TEXT COLLATE "C" NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX file_completed_uploads_time ON file_completed_uploads (completed_at);

CREATE TABLE file_access_keys (
    id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    rights TEXT NOT NULL,
    scopes TEXT,
    created_by TEXT COLLATE "C",
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    CONSTRAINT rights_known CHECK (rights IN ('read', 'write', 'read-write'))
);

ALTER TABLE peerd_tokens ADD COLUMN file_scopes TEXT;
