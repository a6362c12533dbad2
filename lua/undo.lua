#!lua flags=allow-oom
-- Takes an operation that went to quarantine out of what is resident: the user's state and the count become what MySQL has.
-- Must be atomic: an operation between the look and the change would be undone with it.
-- KEYS 1 meta, 2 slices, 3 user, 4 count; then all live slices that are newer than the entry's
-- ARGV 1 fence token, 2 id of the entry's slice, 3 target, 4 field of the entry, 5 its signed version,
--      6 the row's signed version or ''; then the ids of the live slices
-- Answers 1 taken back, 0 nothing to do, -1 not the current flusher, -2 moved: other slices are live
local call, sub, byte = redis.call, string.sub, string.byte
local m = call('HMGET', KEYS[1], 'fence', 'generation')
if m[1] ~= ARGV[1] then return -1 end
local generation = m[2]

-- A later operation on the pair stands on this one, and lands after it.
local newer = call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf')
if #newer ~= #KEYS - 4 then return -2 end
for i, id in ipairs(newer) do
  if id ~= ARGV[6 + i] then return -2 end
  if call('HEXISTS', KEYS[4 + i], ARGV[4]) == 1 then return 0 end
end

local marker, have = unpack(call('HMGET', KEYS[3], '#', ARGV[3]))
if not marker or sub(marker, 1, 16) ~= generation then return 0 end
local complete = sub(marker, 17, 17) == 'c'
local refused = byte(ARGV[5]) ~= 45 -- a minus sign
if have ~= ARGV[5] and (refused or have or not complete) then return 0 end

local row = ARGV[6] ~= '' and byte(ARGV[6]) ~= 45
if row then
  call('HSET', KEYS[3], ARGV[3], ARGV[6])
else
  call('HDEL', KEYS[3], ARGV[3])
end
local value = call('GET', KEYS[4])
-- A target that is gone has no number.
local n = value and sub(value, 1, 16) == generation and tonumber(string.match(value, '^%-?%d+', 17))
if row ~= refused and n then
  n = n + (row and 1 or -1)
  local colon = string.find(value, ':', 17, true)
  call('SET', KEYS[4], generation .. string.format('%.0f', n) .. sub(value, colon), 'KEEPTTL')
end
return 1
