-- Until when nothing is pruned because an import may be under way, Unix ms by this server's clock; each of its transactions moves
-- it on, so that one that died does not stop pruning for ever.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the column is added only where it is missing, and this can be repeated.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'flush_state' AND column_name = 'import_until'
);
SET @change = IF(@missing,
    'ALTER TABLE flush_state ADD COLUMN import_until BIGINT UNSIGNED NOT NULL DEFAULT 0',
    'DO 0');
PREPARE change_flush_state FROM @change;
EXECUTE change_flush_state;
DEALLOCATE PREPARE change_flush_state;
