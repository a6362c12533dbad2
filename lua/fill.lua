#!lua
-- Makes users and counts resident with what MySQL said. Plain flags: a full Redis loads nothing.
-- Must be atomic: between the check that no operation can have come, landed and gone since `sealed` was read, and the write, nothing may happen.
-- KEYS 1 meta; then users and counts that were cold when the caller read generation and `sealed`
-- ARGV 1 generation, 2 sealed; then per key: 'u', TTL in s, 'c' (complete) or 'p' (partial), number n, n times target and version;
--      or 'c', TTL in s, count
-- Answers the number of keys that are resident now, or -1: refused, begin again
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'done')
local generation = ARGV[1]
if m[1] ~= generation or tonumber(m[2]) > tonumber(ARGV[2]) then return -1 end

local at = 3
for i = 2, #KEYS do
  local key, ttl = KEYS[i], ARGV[at + 1]
  if ARGV[at] == 'u' then
    local n = tonumber(ARGV[at + 3])
    local marker = call('HGET', key, '#')
    if not marker or string.sub(marker, 1, 16) ~= generation then
      call('UNLINK', key)
      call('HSET', key, '#', generation .. ARGV[at + 2] .. '0')
      local first, last = at + 4, at + 3 + 2 * n
      for from = first, last, 1000 do
        call('HSET', key, unpack(ARGV, from, math.min(from + 999, last)))
      end
      call('EXPIRE', key, ttl)
    end
    at = at + 4 + 2 * n
  else
    local have = call('GET', key)
    if not have or string.sub(have, 1, 16) ~= generation then
      call('SET', key, generation .. ARGV[at + 2] .. ':0', 'EX', ttl)
    end
    at = at + 3
  end
end
return #KEYS - 1
