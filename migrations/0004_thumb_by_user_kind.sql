-- What a user liked of one kind, newest first.
--
-- thumb_by_user has it over all kinds, in the order of time: whoever likes a thousand photos for each blog would have them all
-- read to find twenty blogs. This index begins where the list does and ends at LIMIT. It costs a flush one more entry per row.
--
-- MySQL has no ADD KEY IF NOT EXISTS; so the index is added only where it is missing, and this can be repeated. An older program
-- works on with it.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = 'thumb' AND index_name = 'thumb_by_user_kind'
);
SET @change = IF(@missing,
    'ALTER TABLE thumb ADD KEY thumb_by_user_kind (user_id, thumbed, kind_id, version)',
    'DO 0');
PREPARE change_thumb FROM @change;
EXECUTE change_thumb;
DEALLOCATE PREPARE change_thumb;
