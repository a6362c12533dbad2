#!lua
-- Unlikes while likes are imported: as unthumb.lua, but one of what is not liked is an entry too, so that an older like that is
-- imported later does not win over it. The count is pinned with it, because it may differ from the rows until that entry lands.
-- KEYS as thumb.lua
-- ARGV as thumb.lua
-- Answers as thumb.lua
local WANTED, KEPT = false, true
