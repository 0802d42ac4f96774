-- Takes the lock of a proposal back that found no majority. A later one is not touched.
--
-- KEYS  1 lock, 2 its state
-- ARGV  1 exclusive (1/0), 2 number and 3 id of the proposal, 4 token, 5 channel of releases
-- Reply 1 withdrawn | 0 this node had not accepted the proposal, or has accepted a later one of that token

local state = on_key('HMGET', KEYS[2], 'ballot', 'ballot_id', 'token')
local number, id = tonumber(ARGV[2]), tonumber(ARGV[3])
local accepted, accepted_id = tonumber(state[1] or 0), tonumber(state[2] or 0)
local is_accepted = accepted == number and accepted_id == id and state[3] == ARGV[4]
-- A later proposal of somebody else wrote the state since, and left the lock.
local is_left = state[3] ~= ARGV[4] and (accepted > number or accepted == number and accepted_id > id)
local is_held = ARGV[1] == '1' and redis.pcall('GET', KEYS[1]) == ARGV[4]
if is_accepted then
  redis.call('HSET', KEYS[2], 'lease_end', '0')
elseif not (is_left and is_held) then
  return 0
end
if is_held then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[5], ARGV[4])
end
return 1
