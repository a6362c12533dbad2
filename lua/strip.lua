#!lua flags=allow-oom
-- Takes likes of targets that are gone out of what their users hold. The users stay resident: without the field a complete user
-- does not like the target, and of a partial one MySQL is asked. Up to a version, because a restored target may be liked anew.
-- Must be atomic: a load that read MySQL before the rows went must not fill behind this; `floor` refuses it.
-- KEYS 1 meta; then per like its user
-- ARGV 1 '1', or '0' if no rows were removed since `floor` was raised; then per like its target and version
-- Answers how many were there
local call = redis.call
local sealed = call('HGET', KEYS[1], 'sealed')
if not sealed then return 0 end
if ARGV[1] == '1' then
  local floor = string.format('%.0f', tonumber(sealed) + 1)
  call('HSET', KEYS[1], 'sealed', floor, 'floor', floor)
end
local count = 0
for i = 2, #KEYS do
  local target, version = ARGV[2 * i - 2], tonumber(ARGV[2 * i - 1])
  local have = call('HGET', KEYS[i], target)
  if have and math.abs(tonumber(have)) <= version then
    count = count + call('HDEL', KEYS[i], target)
  end
end
return count
