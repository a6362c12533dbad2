-- Limits of what one user may change; stands between the head and the body (change.lua). If an operation of the call is of a kind
-- with limits, two keys and two arguments more per operation follow behind all others: its user's operations and its pair's
-- toggles, and what the kind allows of each; of what is not limited the key of meta, and ''. Otherwise nothing here is called.
-- Only what would change something is looked at, and only what does is noted. Both keys always have a TTL: when they are over,
-- what they say is, too.
local operations = #ARGV - #KEYS
local limited = #KEYS > 3 + 2 * operations
local rates = {}

-- GCRA: `full` is the moment at which all that was accepted is paid off, one operation per interval; with it stands the interval,
-- so that what is left to be paid is as many operations under another one. ARGV 'interval burst' in µs.
local function rate_of(key, allows, now)
  local interval, burst = string.match(allows, '^(%d+) (%d+)$')
  local rate = rates[key]
  if not rate then
    local full, old = string.match(redis.call('GET', key) or '', '^(%d+) (%d+)$')
    local left = full and math.max(0, full - now) or 0
    if left > 0 and old ~= interval then left = math.ceil(left * interval / old) end
    rate = {full = now + left, interval = interval}
    rates[key] = rate
  end
  return rate, rate.full + interval, rate.full + interval - burst - now
end

-- The value is 'level moment': how many toggles count, and when the last one was. ARGV 'first longest' in µs.
local function toggle_of(key, allows, now)
  local first, most = string.match(allows, '^(%d+) (%d+)$')
  local level, last = string.match(redis.call('GET', key) or '', '^(%d+) (%d+)$')
  first, most, level = tonumber(first), tonumber(most), tonumber(level or 0)
  if level == 0 then return 1, most, 0 end
  local quiet = math.max(0, now - last)
  local wait = math.min(first * 2 ^ (level - 1), most) - quiet
  level = math.max(0, level - math.floor(quiet / most))
  if level == 0 or first * 2 ^ (level - 1) < most then level = level + 1 end
  return level, most, wait
end

-- The code of the limit that refuses operation i the longest, and for how many ms; or nothing, and then it is noted if it is done.
local function refused(i, now, done)
  local keys, args = 4 + 2 * operations + 2 * i, 4 + 3 * operations + 2 * i
  local rate, full, level, most
  local rate_wait, toggle_wait = 0, 0
  if ARGV[args] ~= '' then rate, full, rate_wait = rate_of(KEYS[keys], ARGV[args], now) end
  if ARGV[args + 1] ~= '' then level, most, toggle_wait = toggle_of(KEYS[keys + 1], ARGV[args + 1], now) end
  local wait = math.max(rate_wait, toggle_wait)
  if wait > 0 then return rate_wait >= toggle_wait and 7 or 8, math.ceil(wait / 1000) end
  if not done then return end
  if rate then rate.full, rate.noted = full, true end
  if level then
    local ttl = string.format('%.0f', math.ceil(level * most / 1000))
    redis.call('SET', KEYS[keys + 1], string.format('%d %.0f', level, now), 'PX', ttl)
  end
end

-- Each user's operations are written once a call.
local function note_rates(now)
  for key, rate in pairs(rates) do
    if rate.noted then
      local ttl = string.format('%.0f', math.ceil((rate.full - now) / 1000))
      redis.call('SET', key, string.format('%.0f ', rate.full) .. rate.interval, 'PX', ttl)
    end
  end
end

