#!lua flags=allow-oom
-- Raises a partition's clock to Redis's time, or to a version that is later, and tells it: whatever is accepted afterwards is newer.
-- Must be atomic: an operation between the look and the change would get a version that is taken for an old one.
-- KEYS 1 meta
-- ARGV 1 a version, or 0
-- Answers the clock as a text, or nil: uninitialised
local call = redis.call
local clock = call('HGET', KEYS[1], 'clock')
if not clock then return false end
local time = call('TIME')
local now = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(clock), tonumber(ARGV[1])))
call('HSET', KEYS[1], 'clock', now)
return now
