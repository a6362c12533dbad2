#!lua flags=allow-oom
-- Takes a slice that has landed out of the live ones and keeps it for a while, in case MySQL forgets it; removes what was kept long enough.
-- Must be atomic: a slice is live or kept, never both and never neither.
-- KEYS 1 meta, 2 slices, 3 kept, 4 the slice, 5 its kept name; then kept slices that may go
-- ARGV 1 fence token, 2 id of the slice, 3 keep in ms; then the ids of those that may go
-- Answers 1, or 0: not the current flusher
local call = redis.call
if call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
call('ZREM', KEYS[2], ARGV[2])
if call('EXISTS', KEYS[4]) == 1 then
  call('RENAME', KEYS[4], KEYS[5])
  call('ZADD', KEYS[3], string.format('%.0f', now), ARGV[2])
end
local unkept = 0
for i = 6, #KEYS do
  local since = call('ZSCORE', KEYS[3], ARGV[i - 2])
  if since and tonumber(since) <= now - ARGV[3] then
    call('UNLINK', KEYS[i])
    call('ZREM', KEYS[3], ARGV[i - 2])
    unkept = math.max(unkept, tonumber(ARGV[i - 2]))
  end
end
if unkept > tonumber(call('HGET', KEYS[1], 'unkept') or '0') then
  call('HSET', KEYS[1], 'unkept', string.format('%.0f', unkept))
end
return 1
