#!lua flags=allow-oom
-- Marks a target as gone, whatever stands there, dirty or not: its unflushed likes are void. The mark is clean, and like a clean
-- count it may go: a load brings it back.
-- Must be atomic: who read MySQL before the target was restored must not mark it behind the forgetting that followed, and a load
-- that read MySQL before the target was gone must not fill behind this; `floor` tells of the first and refuses the second.
-- KEYS 1 meta, 2 count
-- ARGV 1 generation and 2 `sealed` before MySQL was read, 3 least id to be sealed, 4 TTL in s
-- Answers 1, or 0: something may have happened since, look again
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'sealed', 'floor')
if m[1] ~= ARGV[1] or tonumber(m[3] or 0) > tonumber(ARGV[2]) then return 0 end
local floor = string.format('%.0f', math.max(tonumber(m[2]) + 1, tonumber(ARGV[3])))
call('HSET', KEYS[1], 'sealed', floor, 'floor', floor)
call('SET', KEYS[2], m[1] .. 'g:0', 'EX', ARGV[4])
return 1
