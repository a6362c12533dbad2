#!lua
-- Unlikes: as thumb.lua, for likes that are taken back. A complete user forgets the target; a partial one keeps a negative
-- version, because what it does not hold would be asked of MySQL, where the like still stands. A target that is gone is not liked.
-- KEYS as thumb.lua
-- ARGV as thumb.lua
-- Answers as thumb.lua
local WANTED, KEPT = false, false
