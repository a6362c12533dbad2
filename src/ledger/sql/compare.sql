-- The stored rows of the staged pairs; a pair without a row gives none.
-- STRAIGHT_JOIN: through the staged pairs in their order, each one a primary key look-up. Without it the optimizer may
-- scan thumb, of whose size it has no idea right after a bulk load.
SELECT STRAIGHT_JOIN stage.seq, thumb.thumbed, thumb.version
FROM thumb_stage AS stage
JOIN thumb
    ON thumb.user_id = stage.user_id
    AND thumb.kind_id = stage.kind_id
    AND thumb.target_id = stage.target_id
-- Nobody may change these rows between the comparison and the upsert, however they come to write here.
FOR UPDATE
