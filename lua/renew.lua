#!lua flags=allow-oom
-- Gives keys that are read their whole life again once half of it is over. A key without a TTL is pinned, and stays so.
-- Must be atomic: between the look at the TTL and the EXPIRE an operation may pin the key.
-- KEYS users and counts
-- ARGV 1 TTL in s
-- Answers how many were renewed
local renewed = 0
for _, key in ipairs(KEYS) do
  local left = redis.call('TTL', key)
  if left >= 0 and left < ARGV[1] / 2 then
    renewed = renewed + redis.call('EXPIRE', key, ARGV[1])
  end
end
return renewed
