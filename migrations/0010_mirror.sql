-- The site's own columns that are kept at the counts, one for a kind. Here and not only in the settings, so that whoever moves
-- counts sets them, also a process that was not told of them. Read and written while the row of flush_state is locked.
--
-- An older program works on with it: it sets the mirrors of its settings, as it always did.

CREATE TABLE IF NOT EXISTS thumb_mirror (
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- table or schema.table, as the settings have it.
    site_table VARCHAR(129) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    id_column VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    count_column VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (kind)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
