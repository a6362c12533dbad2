-- Writes the staged entries that are newer than their rows.
INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version)
SELECT user_id, kind_id, target_id, thumbed, version
FROM thumb_stage
ON DUPLICATE KEY UPDATE
    -- Before version: the assignments are done from left to right, and this one needs the old version.
    thumbed = IF(VALUES(version) > thumb.version, VALUES(thumbed), thumb.thumbed),
    version = GREATEST(thumb.version, VALUES(version))
