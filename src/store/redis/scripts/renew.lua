-- Extends leases whose token matches, and their lease ends. A lock that vanished before its lease
-- end is set again: its holder still has the right to it.
--
-- KEYS  1 store marker, then per lease: lock, its state
-- ARGV  1 longest TTL in ms that others wait for, then per lease: exclusive (1/0), token, TTL in ms
-- Reply per lease: R renewed | T taken by another | A absent | F as T or A, but the store may have
--       forgotten it: reassert.lua decides

local past = notice(KEYS[1], tonumber(ARGV[1]))
local replies = {}
for i = 1, (#ARGV - 1) / 3 do
  local key, state = KEYS[2 * i], KEYS[2 * i + 1]
  local exclusive, token, ttl = ARGV[3 * i - 1] == '1', ARGV[3 * i], tonumber(ARGV[3 * i + 1])
  local value = exclusive and redis.pcall('GET', key)
  local reply
  if value == token then
    redis.call('PEXPIRE', key, ARGV[3 * i + 1])
    reply = 'R'
  elseif type(value) == 'table' and not is_of_other_kind(value) then
    error(value)
  elseif value then
    reply = 'T'
  else
    local kept = on_key('HMGET', state, 'token', 'lease_end')
    if kept[1] ~= token then
      reply = 'A'
    elseif not exclusive then
      reply = 'R'
    elseif number_in(state, 'lease_end', kept[2], 0) > now then
      redis.call('SET', key, token, 'PX', ARGV[3 * i + 1])
      reply = 'R'
    else
      reply = 'A'
    end
  end
  if reply == 'R' then
    on_key('HSET', state, 'token', token, 'lease_end', text(now + ttl))
    keep_for(state, state_span(state, false, ttl))
  elseif recovering(past, ttl) > 0 then
    reply = 'F'
  end
  replies[i] = reply
end
return table.concat(replies)
