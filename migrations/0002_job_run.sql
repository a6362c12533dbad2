-- How long a run of a job waited for the lease, and how long it held it.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS; so the columns are added only where they are missing, and this can be repeated.
SET @missing = (
    SELECT COUNT(*) = 0 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'job_run' AND column_name = 'waited_ms'
);
SET @change = IF(@missing,
    'ALTER TABLE job_run
        ADD COLUMN waited_ms BIGINT UNSIGNED NULL,
        ADD COLUMN held_ms BIGINT UNSIGNED NULL',
    'DO 0');
PREPARE change_job_run FROM @change;
EXECUTE change_job_run;
DEALLOCATE PREPARE change_job_run;
