-- One node's view of a lock and a job, and its promise to take no older proposal.
--
-- KEYS  1 lock, 2 its state, 3 the node's marker; with a job: 4 job
-- ARGV  1 exclusive (1/0), 2 'vote' | 'promise' | 'read' | 'yield',
--       3 the proposal's number (for a vote: the least it may be), 4 its id,
--       5 longest TTL of the list in ms, 6 for how long this request waits at least after a loss
--       in ms: the TTL of its lock or more, 7 how long a vote lasts in ms,
--       8 longest TTL that other nodes know in ms
-- Reply promised | busy (another's vote) | preempted (by a later promise) | read; number promised, now
--       in microseconds, server, lost_at, ms until locks count as free, longest TTL,
--       lock remembered (1/0), job remembered (1/0), 'absent' | 'value' | 'other', value,
--       remaining in ms (-1 without TTL), fence, token, ms left of the lease (negative: it has been
--       over for so long; '' if nothing is known of it), run id, the tokens that ended, proposal taken: number, id; then of the job, if known: number, id,
--       its ledger

local mode, number, id = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local node = recollect(KEYS[3], tonumber(ARGV[5]), tonumber(ARGV[8]), tonumber(ARGV[6]))
local state = on_key('HMGET', KEYS[2], 'fence', 'token', 'lease_end', 'run_id', 'ended',
  'ballot', 'ballot_id', 'promised', 'promised_id', 'vote', 'vote_until', 'epoch')
local promised, promised_id = tonumber(state[8] or 0), tonumber(state[9] or 0)

-- A vote of another process stands. An earlier vote of the same process does not, because no task waits
-- for its answer any more. The low 20 bits of an id count the requests of a process.
local function is_of_another(vote)
  return math.floor(vote / 1048576) ~= math.floor(id / 1048576) or vote > id
end

local answer = 'read'
if mode == 'vote' and state[10] and is_of_another(tonumber(state[10]))
  and tonumber(state[11]) > now then
  answer = 'busy'
elseif mode == 'vote' then
  answer, promised = 'promised', math.max(promised + 1, micros, number)
  redis.call('HSET', KEYS[2], 'promised', text(promised), 'promised_id', text(id),
    'vote', text(id), 'vote_until', text(now + tonumber(ARGV[7])))
  keep_for(KEYS[2], state_span(KEYS[2], KEYS[4], tonumber(ARGV[6])))
elseif mode == 'promise' and (promised > number or promised == number and promised_id > id) then
  answer = 'preempted'
elseif mode == 'promise' then
  answer, promised = 'promised', number
  redis.call('HSET', KEYS[2], 'promised', text(number), 'promised_id', text(id))
  keep_for(KEYS[2], state_span(KEYS[2], KEYS[4], tonumber(ARGV[6])))
elseif mode == 'yield' and state[10] and tonumber(state[10]) == id then
  redis.call('HDEL', KEYS[2], 'vote', 'vote_until')
end

local kind, value, remaining = 'absent', '', 0
if ARGV[1] == '1' then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    if not is_of_other_kind(held) then
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

local lease_end = tonumber(state[3] or 0)
local job = KEYS[4] and on_key('HMGET', KEYS[4], 'ballot', 'ballot_id', 'ledger', 'epoch')
local reply = { answer, text(promised), text(micros), node.server, node.lost_at, text(node.left),
  text(node.longest), remembered(state[12]), job and remembered(job[4]) or '1', kind, value,
  text(remaining), state[1] or '0', state[2] or '',
  lease_end > 0 and text(lease_end - now) or '', state[4] or '', state[5] or '\n',
  state[6] or '0', state[7] or '0' }
if job and job[3] then
  reply[20], reply[21], reply[22] = job[1] or '0', job[2] or '0', job[3]
end
return reply
