#!lua
-- Remembers the last event that a webhook was told.
-- Must be atomic: a relay that slept beyond its lease must not set it back.
-- KEYS 1 the last event that was told
-- ARGV 1 the id of an event that was told, or 0 only to ask
-- Answers the highest id so far
local told = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) > told then
  redis.call('SET', KEYS[1], ARGV[1])
  told = tonumber(ARGV[1])
end
return told
