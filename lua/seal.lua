#!lua flags=allow-oom
-- Closes all slices up to an id for ever, and makes the caller the one flusher whose later steps count.
-- Must be atomic: a like that sees the old `sealed` must be in a slice that this answer lists.
-- KEYS 1 meta, 2 slices, 3 kept
-- ARGV 1 upto, 2 `last` of flush_state, 3 fence token, 4 keep in ms
-- Answers {0, done, sealed, number of live ids ≤ sealed, these, ids kept for longer than that}, or {1}: behind `last`; {2}: uninitialised
local m = redis.call('HMGET', KEYS[1], 'generation', 'sealed', 'done')
if not m[1] then return {2} end
local sealed = tonumber(m[2])
if sealed < tonumber(ARGV[2]) then return {1} end
sealed = math.max(sealed, tonumber(ARGV[1]))
local text = string.format('%.0f', sealed)
redis.call('HSET', KEYS[1], 'sealed', text, 'fence', ARGV[3])
local live = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text)
local time = redis.call('TIME')
local over = string.format('%.0f', time[1] * 1000 + time[2] / 1000 - ARGV[4])
local kept = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', over, 'LIMIT', 0, 1000)
local out = {0, tonumber(m[3]), sealed, #live}
for _, id in ipairs(live) do out[#out + 1] = tonumber(id) end
for _, id in ipairs(kept) do out[#out + 1] = tonumber(id) end
return out
