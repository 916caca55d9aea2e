-- Alerts: which are on, and which were raised lately.

CREATE TABLE IF NOT EXISTS alerts (
    id BIGINT NOT NULL AUTO_INCREMENT,
    kind VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    subject VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    node VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    slot VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    pid INTEGER,
    text LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    data LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    times BIGINT NOT NULL DEFAULT '1',
    raised_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    last_seen_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6),
    on_until TIMESTAMP(6) NULL,
    ended_at TIMESTAMP(6) NULL,
    open_key VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id),
    INDEX alerts_on (on_until),
    INDEX alerts_seen (last_seen_at),
    INDEX alerts_subject (kind, subject, last_seen_at),
    UNIQUE INDEX alerts_open (open_key)
) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;
