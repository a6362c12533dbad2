#!lua flags=allow-oom
-- Ends a partition's life under its layout: whoever was started with that layout is refused from now on. Only a reset begins a new one.
-- Must be atomic: a like between the look and the end would be stranded.
-- KEYS 1 meta, 2 slices, 3 kept; then all kept slices
-- ARGV 1 seconds for which kept slices stay
-- Answers 1, or 0: there are live slices
local call = redis.call
if call('ZCARD', KEYS[2]) > 0 then return 0 end
if call('EXISTS', KEYS[1]) == 1 then call('HSET', KEYS[1], 'layout', '') end
for i = 3, #KEYS do call('EXPIRE', KEYS[i], ARGV[1]) end
return 1
