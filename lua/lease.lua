#!lua flags=allow-oom
-- Takes, renews or gives back a lease on a job.
-- Must be atomic: only its owner may renew or give it back.
-- KEYS 1 the lease
-- ARGV 1 owner, 2 life in ms, or 0 to give it back
-- Answers 1, or 0: somebody else has it
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
