-- Who was erased, and up to when.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the column is added only where it is missing, and this can be repeated.

-- One row per request, while entries that it makes void can still come. An entry is void if its version is not above the row's.
CREATE TABLE IF NOT EXISTS erased (
    erased_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    -- 'user'.
    scope VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- HMAC-SHA-256 of scope and id under the key below: whoever was erased is known again, and not named.
    digest BINARY(32) NOT NULL,
    -- The id itself, until the work is done.
    plain_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    version BIGINT UNSIGNED NOT NULL,
    -- 'open' or 'done'.
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    rows_removed BIGINT UNSIGNED NOT NULL DEFAULT 0,
    created_at DATETIME(6) NOT NULL,
    finished_at DATETIME(6) NULL,
    PRIMARY KEY (erased_id),
    KEY erased_by_digest (digest, version),
    KEY erased_by_state (state)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The key of those digests: one row, made when it is first needed.
CREATE TABLE IF NOT EXISTS erased_key (
    id TINYINT UNSIGNED NOT NULL,
    secret BINARY(32) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The highest version of all that were ever erased, or 0: what is newer is not looked for there.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'flush_state' AND column_name = 'erased_until'
);
SET @change = IF(@missing,
    'ALTER TABLE flush_state ADD COLUMN erased_until BIGINT UNSIGNED NOT NULL DEFAULT 0',
    'DO 0');
PREPARE change_flush_state FROM @change;
EXECUTE change_flush_state;
DEALLOCATE PREPARE change_flush_state;
