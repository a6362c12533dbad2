#!lua flags=allow-oom
-- Lets go of users and counts whose rows were changed outside of a slice. What is clean goes. What is dirty is no longer
-- resident, and cannot be loaded until its last dirty slice has landed: only then MySQL knows all of it.
-- Must be atomic: a load that read MySQL before the change must not fill behind this; `floor` refuses it.
-- KEYS 1 meta; then users, then counts
-- ARGV 1 number of users, 2 the least id to be sealed, or '' if another call has raised `floor` since that change
-- Answers how many were there
local call, sub = redis.call, string.sub
local sealed = call('HGET', KEYS[1], 'sealed')
if not sealed then return 0 end
if ARGV[2] ~= '' then
  local floor = string.format('%.0f', math.max(tonumber(sealed) + 1, tonumber(ARGV[2])))
  call('HSET', KEYS[1], 'sealed', floor, 'floor', floor)
end
local forgotten = string.rep('-', 16)
local count, users = 0, tonumber(ARGV[1])
for i = 2, #KEYS do
  local key = KEYS[i]
  if i <= users + 1 then
    local marker = call('HGET', key, '#')
    if marker then
      count = count + 1
      if sub(marker, 18) == '0' then
        call('UNLINK', key)
      else
        call('HSET', key, '#', forgotten .. sub(marker, 17))
      end
    end
  else
    local value = call('GET', key)
    if value then
      count = count + 1
      if sub(value, -2) == ':0' then
        call('UNLINK', key)
      else
        call('SET', key, forgotten .. sub(value, 17), 'KEEPTTL')
      end
    end
  end
end
return count
