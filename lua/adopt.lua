#!lua flags=allow-oom
-- Takes a slice that is there but not listed back among the live ones. Its entries will change rows under residents, so these become cold.
-- Must be atomic: a flusher in between would note later slices as landed, and the fence is taken from it.
-- KEYS 1 meta, 2 slices, 3 the slice
-- ARGV 1 id of the slice, 2 new generation
-- Answers 1 adopted, 0 not needed
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'sealed', 'done')
local id = tonumber(ARGV[1])
if not m[1] or id > tonumber(m[2]) or call('EXISTS', KEYS[3]) == 0 or call('ZSCORE', KEYS[2], ARGV[1]) then return 0 end
call('ZADD', KEYS[2], ARGV[1], ARGV[1])
local newest = call('ZRANGE', KEYS[2], -1, -1)[1]
call('HSET', KEYS[1],
  'generation', ARGV[2], 'fence', '', 'barrier', newest,
  'done', string.format('%.0f', math.min(tonumber(m[3]), id - 1)))
return 1
