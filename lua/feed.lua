#!lua
-- Appends events to the stream of the feed. The id of an event is that of its entry, so what the stream had before is left out.
-- Must be atomic: two relays may bring the same events, and between a look at the last id and an append the other may have come.
-- KEYS 1 the stream
-- ARGV 1 about how many entries to keep; then for each event its id and its text, ids rising
-- Answers how many were appended, and the last id that the stream has given out now
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    -- Not the last entry's id: somebody may have removed that entry.
    if info[i] == 'last-generated-id' then last = tonumber(string.match(info[i + 1], '^%d+')) end
  end
end
local appended = 0
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i]) > last then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], ARGV[i] .. '-0', 'event', ARGV[i + 1])
    appended = appended + 1
    last = tonumber(ARGV[i])
  end
end
return {appended, last}
