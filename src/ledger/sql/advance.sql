-- Notes what this transaction did; it never goes back, in whatever order slices arrive.
UPDATE flush_state
SET
    last = GREATEST(last, ?),
    landed = GREATEST(landed, ?),
    max_version = GREATEST(max_version, ?),
    progress_slice = ?,
    progress_chunk = ?,
    progress_token = ?
WHERE id = 1
