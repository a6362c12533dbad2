-- Batches of the change feed: which events go to a webhook as one. Whoever delivers a batch again, also another process behind a
-- crash, must deliver the same events under the same id, though more wait by then. So its first event says which is its last; both
-- go in one statement when they are delivered.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the column is added only where it is missing, and this can be repeated. An older program
-- works on with it: it binds nothing, and needs nothing bound.

-- batch_last: 0 until the event is the first of a batch.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'feed_event' AND column_name = 'batch_last'
);
SET @change = IF(@missing,
    'ALTER TABLE feed_event ADD COLUMN batch_last BIGINT UNSIGNED NOT NULL DEFAULT 0',
    'DO 0');
PREPARE change_feed_event FROM @change;
EXECUTE change_feed_event;
DEALLOCATE PREPARE change_feed_event;
