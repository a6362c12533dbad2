#!lua flags=allow-oom
-- Notes that a slice has landed in MySQL, unless somebody else has sealed since.
-- Must be atomic: a flusher that slept through its lease must not note anything.
-- KEYS 1 meta
-- ARGV 1 fence token, 2 id of the slice
-- Answers 1, or 0: not the current flusher
local m = redis.call('HMGET', KEYS[1], 'fence', 'done')
if m[1] ~= ARGV[1] then return 0 end
if tonumber(m[2]) < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], 'done', ARGV[2]) end
return 1
