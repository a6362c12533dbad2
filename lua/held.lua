#!lua flags=no-writes
-- Reads what one user holds that MySQL may not have yet: nothing of a user that is cold, or whose last dirty slice has landed.
-- KEYS 1 meta, 2 user
-- ARGV 1 layout, 2 the only target of interest or '', 3 beginning of the targets of interest or '',
--      4 newest version of interest or '' (of complete users only: of a partial one a newer state may hide an older row)
-- Answers {0, recovering (1 or 0), state, then target and signed version of each}, or {2}: uninitialised; {3, layout}: another one
-- States 0 MySQL has it all, 1 complete: these are the user's likes, 2 partial: MySQL has the others.
local m = redis.call('HMGET', KEYS[1], 'done', 'barrier', 'generation', 'layout')
local generation = m[3]
if not generation then return {2} end
if m[4] ~= ARGV[1] then return {3, m[4] or ''} end

local done = tonumber(m[1])
local marker = redis.call('HGET', KEYS[2], '#')
local dirty = marker and tonumber(string.sub(marker, 18)) or 0
if dirty <= done or string.sub(marker, 1, 16) ~= generation then
  -- Of one that was forgotten while it was dirty, MySQL does not know all yet.
  local waits = dirty > done and string.byte(marker) == 45
  return {0, (waits or done < tonumber(m[2])) and 1 or 0, 0}
end

local complete = string.sub(marker, 17, 17) == 'c'
local out = {0, 0, complete and 1 or 2}
if ARGV[2] ~= '' then
  local value = redis.call('HGET', KEYS[2], ARGV[2])
  if value then out[4], out[5] = ARGV[2], value end
  return out
end
local prefix, newest = ARGV[3], complete and tonumber(ARGV[4])
local fields = redis.call('HGETALL', KEYS[2])
local n = 3
for i = 1, #fields, 2 do
  local target, value = fields[i], fields[i + 1]
  if target ~= '#' and string.sub(target, 1, #prefix) == prefix and not (newest and tonumber(value) > newest) then
    out[n + 1], out[n + 2] = target, value
    n = n + 2
  end
end
return out
