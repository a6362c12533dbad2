-- What quarantine keeps of an entry that cannot be read, and the mark of a change outside of a slice.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the columns are added only where they are missing, and this can be repeated.

-- An entry that cannot be read has no user: user_id and kind are '', target_id is a digest of slice, field and value, version is
-- the slice. Its bytes stand in raw_field and raw_value, cut at 1024.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'quarantine' AND column_name = 'raw_field'
);
SET @change = IF(@missing,
    'ALTER TABLE quarantine
        ADD COLUMN partition_id SMALLINT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN slice_id BIGINT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN raw_field VARBINARY(1024) NULL,
        ADD COLUMN raw_value VARBINARY(1024) NULL',
    'DO 0');
PREPARE change_quarantine FROM @change;
EXECUTE change_quarantine;
DEALLOCATE PREPARE change_quarantine;

-- The token of whoever changes rows or counts outside of a slice and has not told Redis yet; '' for nobody. Set in the
-- transaction that changes them: whoever finds it and is not its owner makes everything resident cold.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'flush_state' AND column_name = 'outside_token'
);
SET @change = IF(@missing,
    'ALTER TABLE flush_state
        ADD COLUMN outside_token VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''''',
    'DO 0');
PREPARE change_flush_state FROM @change;
EXECUTE change_flush_state;
DEALLOCATE PREPARE change_flush_state;
