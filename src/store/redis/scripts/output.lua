-- The output of a triggered run on its way to the command that waits for it: keeps a part, or returns
-- the parts.
--
-- KEYS  1 the output (hash: number -> JSON, read -> the number that the reader wants next)
-- ARGV  1 number of the part; of a reader: of the first part it wants, then
--       2 how long the output is kept in ms, and 3 JSON; without 3: reads, and deletes earlier parts
-- Reply to a part: the number that the reader wants next; to a reader, per part: number, JSON

local number = tonumber(ARGV[1])
if ARGV[3] then
  on_key('HSET', KEYS[1], ARGV[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(on_key('HGET', KEYS[1], 'read') or '0') or 0
end
local replies, parts = {}, on_key('HGETALL', KEYS[1])
for i = 1, #parts, 2 do
  local at = tonumber(parts[i])
  if at and at < number then
    on_key('HDEL', KEYS[1], parts[i])
  elseif at then
    replies[#replies + 1] = { at, parts[i + 1] }
  end
end
if #parts > 0 then
  on_key('HSET', KEYS[1], 'read', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return replies
