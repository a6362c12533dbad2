#!lua flags=allow-oom
-- Notes that an instance lives, forgets those that have been silent for too long, and tells of all.
-- Must be atomic: whoever is forgotten must not have spoken in between.
-- KEYS 1 the instances: id -> when it was heard (ms), a space, and what it says of itself
-- ARGV 1 id, 2 what it says of itself, or '' to sign off, 3 how long one that is silent is remembered, in ms
-- Answers of each instance: id, for how long it has been silent, in ms, and what it says
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life = tonumber(ARGV[3])
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now, ARGV[2]))
  redis.call('PEXPIRE', KEYS[1], life)
end
local all = redis.call('HGETALL', KEYS[1])
local answer = {}
for i = 1, #all, 2 do
  local heard, says = string.match(all[i + 1], '^(%d+) (.*)$')
  -- A clock that was set back must not keep anybody alive.
  local silent = heard and math.max(now - heard, 0)
  if silent and silent < life then
    answer[#answer + 1] = all[i]
    answer[#answer + 1] = silent
    answer[#answer + 1] = says
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return answer
