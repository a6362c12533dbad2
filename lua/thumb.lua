#!lua
-- Likes: makes 1 to N users like targets, all of one partition. Plain flags: a full Redis refuses the call before it has written anything.
-- Must be atomic: whether a state really changes, its version, the slice it goes into, the count and the pins are one decision.
-- KEYS 1 meta, 2 slices, 3 the slice that the caller believes to be open; then per operation: user, count
-- ARGV 1 id of that slice, 2 slice length in ms, 3 layout; then per operation: user, target, what MySQL says or ''
--      (generation, `sealed`, ':', 1 or 0: read by the caller for a target that a partial user does not hold)
-- Where limits hold, more of both behind these: see limit.lua
-- Answers {0, generation, sealed, then per operation a code and the partition's part of the count}, or
--      {1, id}: moved, another slice is open, nothing was done; {2}: uninitialised; {3, layout}: the keys are laid out in another one
-- Codes 1 changed, -1 was so already, 2 user cold, 3 count cold, 4 both cold, 5 recovering, 6 not held by a partial user,
--      7 too many operations of the user, 8 too many toggles of the pair (nothing was done, and the ms to wait instead of the count),
--      9 the target is gone
local WANTED, KEPT = true, false
