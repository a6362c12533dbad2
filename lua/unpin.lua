#!lua flags=allow-oom
-- Gives users and counts that MySQL knows all of their TTL back.
-- Must be atomic: an operation between the look and the EXPIRE would pin a key that then expires with the operation in it.
-- KEYS 1 meta; then users, then counts
-- ARGV 1 fence token, 2 id of the slice that landed, 3 number of users, 4 TTL in s, 5 spread of the TTL in s, 6 largest user in fields
-- Answers 1, or 0: not the current flusher
local call, sub = redis.call, string.sub
if call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
local landed, users = tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl, spread, largest = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
for i = 2, #KEYS do
  local key = KEYS[i]
  -- Neighbours get lives of different length, or they would all have to be loaded again at once.
  local life = ttl + (i * 7919 + landed / 1000) % spread
  life = life - life % 1
  if i <= users + 1 then
    local marker = call('HGET', key, '#')
    local dirty = marker and tonumber(sub(marker, 18))
    if dirty and dirty > 0 and dirty <= landed then
      if call('HLEN', key) > largest then
        call('UNLINK', key)
      else
        call('HSET', key, '#', sub(marker, 1, 17) .. '0')
        call('EXPIRE', key, life)
      end
    end
  else
    local value = call('GET', key)
    local colon = value and string.find(value, ':', 17, true)
    local dirty = colon and tonumber(sub(value, colon + 1))
    if dirty and dirty > 0 and dirty <= landed then
      call('SET', key, sub(value, 1, colon) .. '0', 'EX', life)
    end
  end
end
return 1
