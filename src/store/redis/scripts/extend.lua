-- Extends leases on one node whose token matches.
--
-- A lock that is gone is set again while its lease end has not come, while the node recovers from
-- a loss of its data, and when asked to, because a majority of the nodes has the lease; never for
-- a token that finished.
--
-- KEYS  1 the node's marker, then per lease: lock, its state
-- ARGV  1 longest TTL of the list in ms, 2 set again what is gone (1/0), 3 longest TTL that other
--       nodes know in ms, then per lease: exclusive (1/0), token, TTL in ms
-- Reply per lease: R renewed | F as R, but this node has no record of the grant | T taken by another
--       | A absent

local listed, elsewhere, letters = tonumber(ARGV[1]), tonumber(ARGV[3]), {}
for i = 1, (#KEYS - 1) / 2 do
  local key, hash = KEYS[2 * i], KEYS[2 * i + 1]
  local exclusive, token, ttl = ARGV[3 * i + 1] == '1', ARGV[3 * i + 2], tonumber(ARGV[3 * i + 3])
  local node = recollect(KEYS[1], listed, elsewhere, ttl)
  local kept = on_key('HMGET', hash, 'token', 'lease_end', 'ended', 'run_id')
  local granted = kept[1] == token
  local ended = has_ended(kept[3] or '\n', token)
  local value = exclusive and redis.pcall('GET', key)
  local again = ARGV[2] == '1' or node.left > 0
  local letter = 'A'
  if value == token then
    letter = 'R'
  elseif type(value) == 'table' and not is_of_other_kind(value) then
    error(value)
  elseif value then
    letter = 'T'
  elseif ended then
    letter = 'A'
  elseif granted and (not exclusive or number_in(hash, 'lease_end', kept[2], 0) > now) then
    letter = 'R'
  elseif again and (exclusive or not kept[1] or kept[1] == '') then
    letter = 'R'
    if not exclusive then
      redis.call('HSET', hash, 'token', token)
      granted = true
    end
  end
  if letter == 'R' then
    if exclusive then
      redis.call('SET', key, token, 'PX', ARGV[3 * i + 3])
    end
    if granted then
      redis.call('HSET', hash, 'lease_end', text(now + ttl))
    end
    keep_for(hash, state_span(hash, false, ttl))
    -- A renewal set this token: it has no run.
    letter = granted and (kept[4] or '') ~= '' and 'R' or 'F'
  end
  letters[i] = letter
end
return table.concat(letters)
