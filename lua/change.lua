-- The body of thumb.lua, unthumb.lua and unthumb_kept.lua; `WANTED`, `KEPT` and limit.lua stand above.
local call, sub, byte, match, format = redis.call, string.sub, string.byte, string.match, string.format
local meta, slices, slice = KEYS[1], KEYS[2], KEYS[3]
local open = ARGV[1]

local m = call('HMGET', meta, 'clock', 'sealed', 'done', 'barrier', 'generation', 'layout', 'floor')
local generation = m[5]
if not generation then return {2} end
if m[6] ~= ARGV[3] then return {3, m[6] or ''} end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local clock, sealed, done = tonumber(m[1]), tonumber(m[2]), tonumber(m[3])
if now <= clock then now = clock + 1 end

local slice_us = ARGV[2] * 1000
local start = (now - now % slice_us) / 1000
if start <= sealed then start = sealed + 1 end
if start ~= tonumber(open) then return {1, start} end

local recovering, floor = done < tonumber(m[4]), tonumber(m[7] or 0)
local out = {0, generation, sealed}

-- Each count is read once and written once, all of them in one command. This one stands for a target that is gone.
local gone = {}
local counts, names, changed, waits = {}, {}, {}, {}
for i = 0, operations - 1 do
  local key = KEYS[5 + 2 * i]
  if counts[key] == nil then
    names[#names + 1] = key
    counts[key] = false
  end
end
for from = 1, #names, 1000 do
  local upto = math.min(from + 999, #names)
  local values = call('MGET', unpack(names, from, upto))
  for i = from, upto do
    local v = values[i - from + 1]
    counts[names[i]] = v and sub(v, 1, 16) == generation
      and (tonumber(match(v, '^%-?%d+', 17)) or byte(v, 17) == 103 and gone) -- a g
    -- Forgotten, and dirty with what has not landed.
    waits[names[i]] = v and byte(v) == 45 and tonumber(match(v, '%d+$')) > done
  end
end

local entries = {}
local version = now - 1

for i = 0, operations - 1 do
  local user_key, count_key = KEYS[4 + 2 * i], KEYS[5 + 2 * i]
  local user, target, known = ARGV[4 + 3 * i], ARGV[5 + 3 * i], ARGV[6 + 3 * i]
  local u = call('HMGET', user_key, '#', target)
  local marker, have = u[1], u[2]
  local user_cold = not marker or sub(marker, 1, 16) ~= generation
  local n = counts[count_key]

  local thumbed
  if not user_cold then
    if have then
      thumbed = byte(have) ~= 45 -- a minus sign
    elseif sub(marker, 17, 17) == 'c' then
      thumbed = false
    elseif sub(known, 1, 16) == generation and math.max(done, floor) <= tonumber(match(known, '^%d+', 17)) then
      thumbed = sub(known, -1) == '1'
    end
  end

  local code, wait
  -- Refused before a cold count is loaded: whoever does too much must not keep MySQL busy.
  if n == gone then
    code, wait = WANTED and 9 or -1, 0
  elseif limited and thumbed == not WANTED then
    code, wait = refused(i, now, n)
  end
  if code then
    n = wait
  elseif user_cold or not n then
    local unlanded = recovering or waits[count_key]
      or user_cold and marker and byte(marker) == 45 and tonumber(sub(marker, 18)) > done
    code = unlanded and 5 or (user_cold and (n and 2 or 4) or 3)
  else
    if thumbed == nil then
      code = 6
    elseif thumbed == WANTED and (have or not KEPT) then
      code = -1
    else
      code = thumbed == WANTED and -1 or 1
      version = version + 1
      local dirty = sub(marker, 18)
      local value = format(WANTED and '%.0f' or '-%.0f', version)
      if WANTED or sub(marker, 17, 17) ~= 'c' then
        if dirty == open then
          call('HSET', user_key, target, value)
        else
          call('HSET', user_key, target, value, '#', sub(marker, 1, 17) .. open)
        end
      else
        if dirty ~= open then call('HSET', user_key, '#', sub(marker, 1, 17) .. open) end
        call('HDEL', user_key, target)
      end
      if dirty == '0' then call('PERSIST', user_key) end
      entries[#entries + 1] = user .. ' ' .. target
      entries[#entries + 1] = value
      if code == 1 then n = WANTED and n + 1 or n - 1 end
      counts[count_key], changed[count_key] = n, true
    end
  end
  out[#out + 1] = code
  out[#out + 1] = n or 0
end

if #entries > 0 then
  for i = 1, #entries, 1000 do
    call('HSET', slice, unpack(entries, i, math.min(i + 999, #entries)))
  end
  -- MSET leaves no TTL: that is the pin.
  local writes = {}
  for _, key in ipairs(names) do
    if changed[key] then
      writes[#writes + 1] = key
      writes[#writes + 1] = generation .. format('%.0f', counts[key]) .. ':' .. open
    end
  end
  for from = 1, #writes, 1000 do
    call('MSET', unpack(writes, from, math.min(from + 999, #writes)))
  end
  call('ZADD', slices, open, open)
  call('HSET', meta, 'clock', format('%.0f', version))
  if limited then note_rates(now) end
end
return out
