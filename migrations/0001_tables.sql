-- The tables of thumbd.
--
-- Every migration can be repeated (IF NOT EXISTS): DDL commits by itself, so one that was cut off is simply run again.
-- An older thumbd may be running while a newer one migrates: only add, with defaults; never rename, never drop what is in use.
--
-- Ids are compared byte by byte, `Ab` is not `ab`. ascii_bin pads with spaces when it compares, so `ab` and `ab ` would be
-- one key; ids have no spaces (see src/domain/ids.rs), so the two never meet here.
-- Versions are microseconds and slices are milliseconds since 1970, both by Redis's clock, as numbers: no session's time zone
-- can bend them. DATETIME columns hold UTC and are written with UTC_TIMESTAMP.

-- The kinds of targets, by number because the number stands in every row of the big tables.
CREATE TABLE IF NOT EXISTS kind (
    kind_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT,
    name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (kind_id),
    UNIQUE KEY kind_by_name (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- One row per user and target that was ever liked. thumbed = 0 stays, so that an older slice cannot revive it.
-- InnoDB appends the primary key to every secondary index, so both of these answer their question without touching the row.
CREATE TABLE IF NOT EXISTS thumb (
    user_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind_id SMALLINT UNSIGNED NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    thumbed TINYINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (user_id, kind_id, target_id),
    -- Who liked this, newest first; and the exact count of a target.
    KEY thumb_by_target (kind_id, target_id, thumbed, version),
    -- What a user liked, newest first, over all kinds. One kind is filtered from the same index: kind_id is its next column.
    KEY thumb_by_user (user_id, thumbed, version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The thumbed rows of a target, counted. Signed, so that a wrong difference shows up as a wrong number and not as a failed flush.
CREATE TABLE IF NOT EXISTS thumb_count (
    kind_id SMALLINT UNSIGNED NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (kind_id, target_id),
    -- The most liked targets of a kind.
    KEY thumb_count_rank (kind_id, count)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The same per partition of Redis; empty while there is only one.
CREATE TABLE IF NOT EXISTS thumb_count_part (
    kind_id SMALLINT UNSIGNED NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_id SMALLINT UNSIGNED NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (kind_id, target_id, partition_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- How far the flush has come. One row; whoever writes thumb or the counts locks it first.
CREATE TABLE IF NOT EXISTS flush_state (
    id TINYINT UNSIGNED NOT NULL,
    -- Newest slice of which something was committed, and newest one that was committed whole.
    last BIGINT UNSIGNED NOT NULL DEFAULT 0,
    landed BIGINT UNSIGNED NOT NULL DEFAULT 0,
    -- The chunk that was committed last, and by whom.
    progress_slice BIGINT UNSIGNED NOT NULL DEFAULT 0,
    progress_chunk INT UNSIGNED NOT NULL DEFAULT 0,
    progress_token VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    max_version BIGINT UNSIGNED NOT NULL DEFAULT 0,
    -- The layout in Redis that all this was written under; NULL until the first start.
    partitions SMALLINT UNSIGNED NULL,
    slice_ms BIGINT UNSIGNED NULL,
    key_prefix VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
    -- Unliked rows older than this may have been pruned.
    prune_horizon BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

INSERT INTO flush_state (id) VALUES (1) ON DUPLICATE KEY UPDATE id = id;

-- Entries that were refused, each once, with the reason.
CREATE TABLE IF NOT EXISTS quarantine (
    quarantine_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    user_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    thumbed TINYINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    reason VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (quarantine_id),
    UNIQUE KEY quarantine_once (user_id, kind, target_id, version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Runs of the scheduled jobs. A planned run is entered once, whoever tries.
CREATE TABLE IF NOT EXISTS job_run (
    job_run_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    job VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    planned_at DATETIME(6) NOT NULL,
    owner VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    started_at DATETIME(6) NOT NULL,
    finished_at DATETIME(6) NULL,
    outcome VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL,
    detail TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    PRIMARY KEY (job_run_id),
    UNIQUE KEY job_run_once (job, planned_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
