-- The one row of flush_state, in the order in which state.rs decodes it.
SELECT
    last, landed, max_version,
    progress_slice, progress_chunk, progress_token,
    partitions, slice_ms, key_prefix,
    prune_horizon, outside_token,
    feed_state, feed_last, feed_max, erased_until, targets_void_until
FROM flush_state
WHERE id = 1
