-- The change feed: what landed and was not delivered yet, and whether changes are told at all.
--
-- Whoever writes rows or counts has flush_state locked, and gives out the ids behind that lock: they rise by one in the order of
-- the commits, whatever the server does with AUTO_INCREMENT.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the columns are added only where they are missing, and this can be repeated. An older
-- program works on with them, but tells nothing: switch the feed on when all instances are of this version.

-- type: 1 a thumb, 2 a count, 3 a gap. created_at is UTC.
CREATE TABLE IF NOT EXISTS feed_event (
    event_id BIGINT UNSIGNED NOT NULL,
    type TINYINT UNSIGNED NOT NULL,
    user_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind_id SMALLINT UNSIGNED NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    thumbed TINYINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    count BIGINT NOT NULL,
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (event_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- feed_state: 0 off, 1 running, 2 stopped. feed_last: the last id that was given out. feed_max: more events than that may not wait.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'flush_state' AND column_name = 'feed_state'
);
SET @change = IF(@missing,
    'ALTER TABLE flush_state
        ADD COLUMN feed_state TINYINT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN feed_last BIGINT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN feed_max BIGINT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN feed_stopped_at DATETIME(6) NULL',
    'DO 0');
PREPARE change_flush_state FROM @change;
EXECUTE change_flush_state;
DEALLOCATE PREPARE change_flush_state;
