#!lua flags=no-writes
-- Reads one user's states and one partition's part of the counts of 1 to N targets.
-- KEYS 1 meta, 2 user (the meta key again if there is none); then the counts
-- ARGV 1 layout, 2 '1' if there is a user; then the targets
-- Answers {0, generation, sealed, recovering (1 or 0), then per target a state and a count}, or {2}: uninitialised; {3, layout}: another one
-- Recovering also if one of these keys was forgotten while it was dirty, and what made it so has not landed.
-- States 1 thumbed, 0 not, 2 not held by a partial user, 3 cold, 4 no user. A cold count is nil. A target that is gone has 0 and 0,
-- whatever the user holds.
local m = redis.call('HMGET', KEYS[1], 'sealed', 'done', 'barrier', 'generation', 'layout')
local generation = m[4]
if not generation then return {2} end
if m[5] ~= ARGV[1] then return {3, m[5] or ''} end

local targets = #KEYS - 2
local done = tonumber(m[2])
local recovering = done < tonumber(m[3])
local function waits(text)
  return text and string.byte(text) == 45 and tonumber(string.match(text, '%d+$')) > done
end
local marker, states = nil, {}
if ARGV[2] == '1' then
  marker = redis.call('HGET', KEYS[2], '#')
  if marker and string.sub(marker, 1, 16) == generation then
    states = redis.call('HMGET', KEYS[2], unpack(ARGV, 3))
  else
    recovering = recovering or waits(marker)
    marker = false
  end
end
local absent = 4
if marker == false then
  absent = 3
elseif marker then
  absent = string.sub(marker, 17, 17) == 'c' and 0 or 2
end

local counts = redis.call('MGET', unpack(KEYS, 3))
local out = {0, generation, tonumber(m[1]), 0}
for i = 1, targets do
  local have, count = states[i], counts[i]
  local resident = count and string.sub(count, 1, 16) == generation
  local n = resident and tonumber(string.match(count, '^%-?%d+', 17))
  if resident and not n then
    out[#out + 1] = absent == 4 and 4 or 0
    n = 0
  elseif have then
    out[#out + 1] = string.byte(have) == 45 and 0 or 1
  else
    out[#out + 1] = absent
  end
  if not resident then
    recovering = recovering or waits(count)
  end
  out[#out + 1] = n
end
if recovering then out[4] = 1 end
return out
