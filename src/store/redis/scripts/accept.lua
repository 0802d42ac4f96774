-- Accepts a proposal: the state of a lock and of a job as a majority saw and changed it.
--
-- KEYS  1 lock, 2 its state, 3 the node's marker; with a job: 4 job, 5 its history, 6 its failures, 7 the
--       failures of all jobs
-- ARGV  1 exclusive (1/0), 2 number and 3 id of the proposal, 4 channel of releases,
--       5 publish the release (1/0), 6 what the history keeps or '', 7 fence, 8 token, 9 run id, 10 tokens that ended,
--       11 'take' (the lock, for the token) | 'stay' | 'over' (the lease), 12 TTL, what is left of
--       the lease, or for how long it has been over ('' if that is not known), in ms,
--       13 the job's ledger or '', 14 number and 15 id of the proposal that it was taken from,
--       then per record: how many names and values, these
-- Reply accepted, 'sound' | 'forgetful' (has not received lock and job since it lost its data) |
--       'recovering' (lost its data recently), '' or the mark of a history that may lack records
--       | promised (to a later one) | held (the lock, by another)

local number, id, token, ended = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[8], ARGV[10]
local take = ARGV[11] == 'take'
-- How long the lock's state matters from now on, in milliseconds.
local span = ARGV[11] ~= 'over' and tonumber(ARGV[12]) or 0
if KEYS[5] then
  check_history(KEYS[5])
end
-- The longest TTLs of job lists came with the prepare.
local node = recollect(KEYS[3], 0, 0, take and span or 0)
local state = on_key('HMGET', KEYS[2], 'promised', 'promised_id', 'token', 'lease_end',
  'epoch', 'vote')
if tonumber(state[1] or 0) ~= number or tonumber(state[2] or 0) ~= id then
  return { 'promised' }
end

-- A lock with a token that ended counts as free: this node missed its release.
local held, over = false, false
if ARGV[1] == '1' then
  held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    if not is_of_other_kind(held) then
      error(held)
    end
  elseif held then
    over = has_ended(ended, held)
  end
end
if take and held and held ~= token and not over then
  return { 'held' }
end

local standing = 'forgetful'
if node.left > 0 then
  standing = 'recovering'
elseif node.lost_at == '' or state[5] == node.lost_at
  and (not KEYS[4] or on_key('HGET', KEYS[4], 'epoch') == node.lost_at) then
  standing = 'sound'
end

local lacks = ''
if ARGV[13] ~= '' then
  -- Records are sent once, with their proposal: a node that did not accept the proposal before this
  -- one may lack some.
  local kept = on_key('HMGET', KEYS[4], 'ballot', 'ballot_id', 'lacks')
  local follows = (kept[1] or '0') == ARGV[14] and (kept[2] or '0') == ARGV[15]
  lacks = follows and (kept[3] or '') or ARGV[2]
  if lacks ~= '' then
    redis.call('HSET', KEYS[4], 'lacks', lacks)
  end
  redis.call('HSET', KEYS[4], 'ledger', ARGV[13], 'ballot', ARGV[2], 'ballot_id', ARGV[3],
    'epoch', node.lost_at)
  keep_for(KEYS[4], job_span(KEYS[4]))
end

local lease_end = 0
if token ~= '' and ARGV[11] == 'over' then
  lease_end = ARGV[12] ~= '' and now - tonumber(ARGV[12]) or 0
elseif take or token ~= '' and state[3] ~= token then
  lease_end = now + span
elseif token ~= '' then
  lease_end = tonumber(state[4] or 0)
end
redis.call('HSET', KEYS[2], 'fence', ARGV[7], 'token', token, 'lease_end', text(lease_end),
  'run_id', ARGV[9], 'ended', ended, 'ballot', ARGV[2], 'ballot_id', ARGV[3],
  'epoch', node.lost_at)
if state[6] and tonumber(state[6]) == id then
  redis.call('HDEL', KEYS[2], 'vote', 'vote_until')
end
keep_for(KEYS[2], state_span(KEYS[2], KEYS[4], span))

local at = 16
while ARGV[at] do
  local record, fields = { ballot = ARGV[2] }, tonumber(ARGV[at])
  for i = at + 1, at + 2 * fields, 2 do
    record[ARGV[i]] = ARGV[i + 1]
  end
  -- If this node lacks records, its newest entry may belong to a decision that was overtaken. Without
  -- `follows` the record is not merged into it.
  if lacks ~= '' and at == 16 then
    record.follows = nil
  end
  append({ runs = KEYS[5], failures = KEYS[6], all = KEYS[7] }, ARGV[6], record)
  at = at + 2 * fields + 1
end

if take and ARGV[1] == '1' then
  redis.call('SET', KEYS[1], token, 'PX', ARGV[12])
elseif over then
  redis.call('DEL', KEYS[1])
end
if over or ARGV[5] == '1' then
  -- Without the right to publish, waiting hosts still retry by themselves.
  redis.pcall('PUBLISH', ARGV[4], token)
end
return { 'accepted', standing, lacks }
