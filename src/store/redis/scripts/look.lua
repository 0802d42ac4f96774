-- One node's view of a lock and a job, and its promise to take no older proposal.
--
-- KEYS  1 lock, 2 its state, 3 the node's marker; with a job: 4 job
-- ARGV  1 exclusive (1/0), 2 'vote' | 'promise' | 'read' | 'yield',
--       3 the proposal's number (for a vote: the least it may be), 4 its id,
--       5 longest TTL known in ms, 6 this lock's TTL in ms, 7 how long a vote lasts in ms
-- Reply promised | busy (another's vote) | outbid (a later promise) | read; number promised, now
--       in microseconds, server, lost_at, ms until locks count as free, longest TTL,
--       lock remembered (1/0), job remembered (1/0), 'absent' | 'value' | 'other', value,
--       remaining in ms (-1 without TTL), fence, token, ms left of the lease end, run id,
--       the tokens that ended, proposal taken: number, id; then of the job, if known: number, id, last,
--       fingerprints, in doubt (1/0), horizon or '', then of its open run: scheduled_at or '', run id, token,
--       attempt, kind, fence, started_at, host, prev_last

local mode, number, id = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local node = recollect(KEYS[3], tonumber(ARGV[5]), tonumber(ARGV[6]))
local state = redis.call('HMGET', KEYS[2], 'fence', 'token', 'lease_end', 'run_id', 'ended',
  'ballot', 'ballot_id', 'promised', 'promised_id', 'vote', 'vote_until', 'epoch')
local promised, promised_id = tonumber(state[8] or 0), tonumber(state[9] or 0)

local answer = 'read'
if mode == 'vote' and state[10] and tonumber(state[10]) ~= id and tonumber(state[11]) > now then
  answer = 'busy'
elseif mode == 'vote' then
  answer, promised = 'promised', math.max(promised + 1, micros, number)
  redis.call('HSET', KEYS[2], 'promised', text(promised), 'promised_id', text(id),
    'vote', text(id), 'vote_until', text(now + tonumber(ARGV[7])))
  redis.call('PEXPIRE', KEYS[2], STATE_TTL)
elseif mode == 'promise' and (promised > number or promised == number and promised_id > id) then
  answer = 'outbid'
elseif mode == 'promise' then
  answer, promised = 'promised', number
  redis.call('HSET', KEYS[2], 'promised', text(number), 'promised_id', text(id))
  redis.call('PEXPIRE', KEYS[2], STATE_TTL)
elseif mode == 'yield' and state[10] and tonumber(state[10]) == id then
  redis.call('HDEL', KEYS[2], 'vote', 'vote_until')
end

local kind, value, remaining = 'absent', '', 0
if ARGV[1] == '1' then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    if string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then
      error(held)
    end
    kind = 'other'
  elseif held then
    kind, value = 'value', held
  end
  if kind ~= 'absent' then
    remaining = redis.call('PTTL', KEYS[1])
  end
end

local function remembered(epoch)
  return (node.lost_at == '' or epoch == node.lost_at) and '1' or '0'
end

local job = KEYS[4] and redis.call('HMGET', KEYS[4], 'ballot', 'ballot_id', 'last',
  'fingerprints', 'doubt', 'epoch', 'horizon', 'scheduled_at', 'run_id', 'token', 'attempt', 'kind', 'fence',
  'started_at', 'host', 'prev_last')
local reply = { answer, text(promised), text(micros), node.server, node.lost_at, text(node.left),
  text(node.longest), remembered(state[12]), job and remembered(job[6]) or '1', kind, value,
  text(remaining), state[1] or '0', state[2] or '',
  text(math.max(0, tonumber(state[3] or 0) - now)), state[4] or '', state[5] or '\n',
  state[6] or '0', state[7] or '0' }
if job and job[3] then
  reply[20], reply[21], reply[22], reply[23] = job[1] or '0', job[2] or '0', job[3], job[4] or ''
  reply[24], reply[25] = job[5] or '0', job[7] or ''
  if job[9] then
    for i = 8, 16 do
      reply[18 + i] = job[i] or ''
    end
  end
end
return reply
