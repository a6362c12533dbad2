#!lua flags=no-writes
-- Shows how a partition stands.
-- KEYS 1 meta, 2 slices, 3 kept
-- ARGV none
-- Answers {time in ms, generation or nil, clock, sealed, done, barrier, unkept, layout, fence, number of live ids, live ids, kept ids}
local time = redis.call('TIME')
local m = redis.call('HMGET', KEYS[1], 'generation', 'clock', 'sealed', 'done', 'barrier', 'unkept', 'layout', 'fence')
local live = redis.call('ZRANGE', KEYS[2], 0, -1)
local kept = redis.call('ZRANGE', KEYS[3], 0, -1)
local out = {time[1] * 1000 + math.floor(time[2] / 1000), m[1]}
for i = 2, 6 do out[i + 1] = tonumber(m[i] or '0') end
out[8] = m[7] or ''
out[9] = m[8] or ''
out[10] = #live
for _, id in ipairs(live) do out[#out + 1] = tonumber(id) end
for _, id in ipairs(kept) do out[#out + 1] = tonumber(id) end
return out
