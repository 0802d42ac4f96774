-- Takes the lock of a proposal back that found no majority. A later one is not touched.
--
-- KEYS  1 lock, 2 its state
-- ARGV  1 exclusive (1/0), 2 number and 3 id of the proposal, 4 token, 5 channel of releases
-- Reply 1 withdrawn | 0 this node had not accepted the proposal

local state = on_key('HMGET', KEYS[2], 'ballot', 'ballot_id', 'token')
if state[1] ~= ARGV[2] or state[2] ~= ARGV[3] or state[3] ~= ARGV[4] then
  return 0
end
redis.call('HSET', KEYS[2], 'lease_end', '0')
if ARGV[1] == '1' and redis.pcall('GET', KEYS[1]) == ARGV[4] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[5], ARGV[4])
end
return 1
