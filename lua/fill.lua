#!lua
-- Makes users and counts resident with what MySQL said. Plain flags: a full Redis loads nothing.
-- Must be atomic: between the check that no operation can have come, landed and gone since `sealed` was read, and the write, nothing may happen.
-- KEYS 1 meta; then users and counts that were cold when the caller read generation and `sealed`
-- ARGV 1 generation, 2 sealed; then per key: 'u', TTL in s, 'c' (complete) or 'p' (partial), number n, n times target and version;
--      or 'c', TTL in s, count, or 'g' for a target that is gone
-- Answers 0, or -1: refused, begin again. What was forgotten while it was dirty is left alone until that has landed.
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'done', 'floor')
local generation, done = ARGV[1], tonumber(m[2])
if m[1] ~= generation or math.max(done, tonumber(m[3] or 0)) > tonumber(ARGV[2]) then return -1 end

-- Forgotten, and dirty with what has not landed: MySQL does not know all of it yet.
local function waits(text)
  return text and string.byte(text) == 45 and tonumber(string.match(text, '%d+$')) > done
end

local at = 3
for i = 2, #KEYS do
  local key, ttl = KEYS[i], ARGV[at + 1]
  if ARGV[at] == 'u' then
    local n = tonumber(ARGV[at + 3])
    local marker = call('HGET', key, '#')
    if (not marker or string.sub(marker, 1, 16) ~= generation) and not waits(marker) then
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
    if (not have or string.sub(have, 1, 16) ~= generation) and not waits(have) then
      call('SET', key, generation .. ARGV[at + 2] .. ':0', 'EX', ttl)
    end
    at = at + 3
  end
end
return 0
