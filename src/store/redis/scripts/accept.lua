-- Takes a proposal: the state of a lock and of a job as a majority saw and changed it.
--
-- KEYS  1 lock, 2 its state, 3 the node's marker; with a job: 4 job, 5 its history
-- ARGV  1 exclusive (1/0), 2 number and 3 id of the proposal, 4 channel of releases,
--       5 tell of a release (1/0), 6 records kept or '', 7 fence, 8 token, 9 run id, 10 tokens that ended,
--       11 'take' (the lock, for the token) | 'stay', 12 TTL, or what is left of the lease, in ms,
--       13 with a job (1/0), 14 last, 15 fingerprints, 16 in doubt (1/0), 17 horizon or '',
--       18 with an open run (1/0), 19 scheduled_at or '', 20 run id, 21 token, 22 attempt, 23 kind,
--       24 fence, 25 started_at, 26 host, 27 prev_last, 28 number and 29 id of the proposal that the
--       job's state was taken from, then per record: how many names and values, these
-- Reply taken, 'sound' | 'forgetful' | 'recovering', '' or the mark of a history that may lack records
--       | promised (to a later one) | held (the lock, by another)

local number, id, token, ended = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[8], ARGV[10]
local take = ARGV[11] == 'take'
local node = recollect(KEYS[3], 0, take and tonumber(ARGV[12]) or 0)
local state = redis.call('HMGET', KEYS[2], 'promised', 'promised_id', 'token', 'lease_end',
  'epoch', 'vote')
if tonumber(state[1] or 0) ~= number or tonumber(state[2] or 0) ~= id then
  return { 'promised' }
end

-- A lock of a token that finished is nobody's: its release did not reach this node.
local held, over = false, false
if ARGV[1] == '1' then
  held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    if string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then
      error(held)
    end
  elseif held then
    over = has_ended(ended, held)
  end
end
if take and held and held ~= token and not over then
  return { 'held' }
end

local with_job = ARGV[13] == '1'
local standing = 'forgetful'
if node.left > 0 then
  standing = 'recovering'
elseif node.lost_at == '' or state[5] == node.lost_at
  and (not KEYS[4] or redis.call('HGET', KEYS[4], 'epoch') == node.lost_at) then
  standing = 'sound'
end

local lacks = ''
if with_job then
  -- Records come once, with the proposal that they belong to: who did not take the one before this
  -- may lack some.
  local kept = redis.call('HMGET', KEYS[4], 'ballot', 'ballot_id', 'lacks')
  local follows = (kept[1] or '0') == ARGV[28] and (kept[2] or '0') == ARGV[29]
  lacks = follows and (kept[3] or '') or ARGV[2]
  if lacks ~= '' then
    redis.call('HSET', KEYS[4], 'lacks', lacks)
  end
  redis.call('HSET', KEYS[4], 'last', ARGV[14], 'fingerprints', ARGV[15], 'doubt', ARGV[16],
    'horizon', ARGV[17], 'ballot', ARGV[2], 'ballot_id', ARGV[3], 'epoch', node.lost_at)
  if ARGV[18] == '1' then
    redis.call('HSET', KEYS[4], 'scheduled_at', ARGV[19], 'run_id', ARGV[20], 'token', ARGV[21],
      'attempt', ARGV[22], 'kind', ARGV[23], 'fence', ARGV[24], 'started_at', ARGV[25],
      'host', ARGV[26], 'prev_last', ARGV[27])
  else
    redis.call('HDEL', KEYS[4], 'run_id', 'token', 'attempt', 'kind', 'fence', 'started_at',
      'host', 'prev_last', 'scheduled_at')
  end
end

local lease_end = 0
if take or token ~= '' and state[3] ~= token then
  lease_end = now + tonumber(ARGV[12])
elseif token ~= '' then
  lease_end = tonumber(ARGV[12]) > 0 and tonumber(state[4] or 0) or 0
end
redis.call('HSET', KEYS[2], 'fence', ARGV[7], 'token', token, 'lease_end', text(lease_end),
  'run_id', ARGV[9], 'ended', ended, 'ballot', ARGV[2], 'ballot_id', ARGV[3],
  'epoch', node.lost_at)
if state[6] and tonumber(state[6]) == id then
  redis.call('HDEL', KEYS[2], 'vote', 'vote_until')
end
redis.call('PEXPIRE', KEYS[2], STATE_TTL)

local at = 30
while ARGV[at] do
  local record, fields = {}, tonumber(ARGV[at])
  for i = at + 1, at + 2 * fields, 2 do
    record[ARGV[i]] = ARGV[i + 1]
  end
  append(KEYS[5], ARGV[6] ~= '' and ARGV[6] or nil, record)
  at = at + 2 * fields + 1
end

if take and ARGV[1] == '1' then
  redis.call('SET', KEYS[1], token, 'PX', ARGV[12])
elseif over then
  redis.call('DEL', KEYS[1])
end
if over or ARGV[5] == '1' then
  -- Without the right to publish, those who wait still ask again by themselves.
  redis.pcall('PUBLISH', ARGV[4], token)
end
return { 'taken', standing, lacks }
