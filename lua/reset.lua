#!lua flags=allow-oom
-- Initialises an empty partition, or makes everything resident cold in one that was rolled back or that MySQL has fallen behind.
-- Must be atomic: no request may see a part of it.
-- KEYS 1 meta, 2 slices, 3 kept; then per kept slice its kept name and its live name
-- ARGV 1 generation that the caller saw ('' for none), 2 new generation, 3 `last` and 4 `max_version` of flush_state,
--      5 `landed` of flush_state or '', 6 layout, 7 number of live ids, these, the kept ids
-- Answers 1 done; 0 the generation is another one already; -1 moved, the ids are not those listed
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'sealed', 'done', 'clock')
if (m[1] or '') ~= ARGV[1] then return 0 end

local function same(ids, first)
  local listed = {}
  for i = 0, #ids - 1 do listed[ARGV[first + i]] = true end
  for _, id in ipairs(ids) do if not listed[id] then return false end end
  return true
end
local live, kept = call('ZRANGE', KEYS[2], 0, -1), call('ZRANGE', KEYS[3], 0, -1)
local listed = tonumber(ARGV[7])
if #live ~= listed or #kept ~= #ARGV - 7 - listed or not same(live, 8) or not same(kept, 8 + listed) then return -1 end

local done = tonumber(m[3] or '0')
if ARGV[5] ~= '' then
  local landed = tonumber(ARGV[5])
  done = math.min(done, landed)
  for i = 8 + listed, #ARGV do
    local id = ARGV[i]
    local from = 4 + 2 * (i - 8 - listed)
    if tonumber(id) > landed then
      if call('EXISTS', KEYS[from]) == 1 then
        call('RENAME', KEYS[from], KEYS[from + 1])
        call('ZADD', KEYS[2], id, id)
        live[#live + 1] = id
      end
      call('ZREM', KEYS[3], id)
    end
  end
end
local newest, oldest = 0, math.huge
for _, id in ipairs(live) do
  newest, oldest = math.max(newest, tonumber(id)), math.min(oldest, tonumber(id))
end
-- What is filled from now on rests on all that landed: `done` says so, or a MySQL that forgets some of it would not be noticed.
if ARGV[5] ~= '' then done = math.max(done, math.min(tonumber(ARGV[5]), oldest - 1)) end
local function text(n) return string.format('%.0f', n) end
call('HSET', KEYS[1],
  'generation', ARGV[2], 'layout', ARGV[6], 'fence', '',
  'sealed', text(math.max(tonumber(m[2] or '0'), tonumber(ARGV[3]), newest)),
  'clock', text(math.max(tonumber(m[4] or '0'), tonumber(ARGV[4]))),
  'done', text(done), 'barrier', text(newest))
return 1
