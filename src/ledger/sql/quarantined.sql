-- Which of the staged entries stand in quarantine, and why. Through the staged ones, each by one look at the unique key.
SELECT STRAIGHT_JOIN stage.seq, refused.reason
FROM thumb_stage AS stage
JOIN kind ON kind.kind_id = stage.kind_id
JOIN quarantine AS refused FORCE INDEX (quarantine_once)
    ON refused.user_id = stage.user_id
    AND refused.kind = kind.name
    AND refused.target_id = stage.target_id
    AND refused.version = stage.version
