#!lua flags=no-writes
-- Which of these commands the caller's user may not run. The server is only asked: none of them is run, and no key is looked at.
-- Need not be atomic; a script, because only there everybody may ask: ACL DRYRUN is a right of administrators.
-- KEYS none
-- ARGV for each command the number of its words, and the words, with keys as they would be
-- Answers the places, from 1, of those that are not allowed or not there
local refused = {}
local at, command = 1, 0
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  command = command + 1
  local there, may = pcall(redis.acl_check_cmd, unpack(ARGV, at + 1, at + words))
  if not there or not may then refused[#refused + 1] = command end
  at = at + 1 + words
end
return refused
