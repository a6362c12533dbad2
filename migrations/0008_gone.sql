-- Which targets were erased.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so each column is added only where it is missing, and this can be repeated. All of them
-- come last in their tables, so both servers add them without copying anything.

-- A like of the target is void if its version is not above this: 0 for nearly all; the highest number of a BIGINT while the target
-- is gone; the moment of its restoration afterwards. It stands in the row that a cold load reads anyway.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'thumb_count' AND column_name = 'void_until'
);
SET @change = IF(@missing,
    'ALTER TABLE thumb_count ADD COLUMN void_until BIGINT UNSIGNED NOT NULL DEFAULT 0',
    'DO 0');
PREPARE change_thumb_count FROM @change;
EXECUTE change_thumb_count;
DEALLOCATE PREPARE change_thumb_count;

-- The highest of them all, or 0: what is newer is not looked for there.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'flush_state' AND column_name = 'targets_void_until'
);
SET @change = IF(@missing,
    'ALTER TABLE flush_state ADD COLUMN targets_void_until BIGINT UNSIGNED NOT NULL DEFAULT 0',
    'DO 0');
PREPARE change_flush_state FROM @change;
EXECUTE change_flush_state;
DEALLOCATE PREPARE change_flush_state;

-- The kind of a target that is being erased, beside its id in plain_id; both until the work is done. The scope is 'target' then.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'erased' AND column_name = 'plain_kind'
);
SET @change = IF(@missing,
    'ALTER TABLE erased ADD COLUMN plain_kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL',
    'DO 0');
PREPARE change_erased FROM @change;
EXECUTE change_erased;
DEALLOCATE PREPARE change_erased;
