-- The short way of a finish, before the rest of the rules is loaded: a run of an occurrence has succeeded
-- under its lease, or a lock without a job is released in time, and nothing is unusual in any key. It does
-- what finish.lua would do, in a fraction of its time. Whatever is not known to be usual goes on to the
-- full rules, which also report what is damaged: up to there nothing is written. KEYS and ARGV are those of
-- finish.lua.

-- The state of the lock, if this token holds it by state and key and has not ended: token, fence,
-- lease_end and the list of the finished.
local function held_state(token)
  local state = redis.pcall('HMGET', KEYS[2], 'token', 'fence', 'lease_end', 'finished')
  local is_held = not state.err and state[1] == token and is_number(state[2]) and is_number(state[3])
    and not string.find(state[4] or '', mark(token), 1, true) and redis.pcall('GET', KEYS[1]) == token
  return is_held and state
end

-- The list of the finished with this token, and without the oldest if it is full.
local function finished_with(state, token)
  return string.sub((state[4] or '') .. 'R' .. mark(token) .. '\n', -FINISHED_KEPT * FINISHED_LINE)
end

-- The number after a name in a summary, if it begins between these places.
local function number_of(summary, name, from, till)
  local at, ends = string.find(summary, name, from, true)
  return at and at < till and tonumber(string.match(summary, '^%d+', ends + 1) or '')
end

local function unlock(token)
  redis.call('DEL', KEYS[1])
  -- Without the right to publish, waiting hosts still retry by themselves.
  redis.pcall('PUBLISH', ARGV[3], token)
  return 'R'
end

if ARGV[1] == '1' and not KEYS[4] then
  local token = ARGV[2]
  local state = held_state(token)
  if state then
    local left, finished = redis.call('PTTL', KEYS[2]), finished_with(state, token)
    -- Written anew: a hash that once held a token keeps the larger form that this needs.
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[2], 'fence', state[2], 'finished', finished)
    redis.call('PEXPIRE', KEYS[2], text(math.max(left, state_span(KEYS[2], false, 0))))
    return unlock(token)
  end
end

-- ARGV[7] is not empty if the record is one of a success of an occurrence, as codec/finish.rs writes it.
if ARGV[1] == '1' and (ARGV[7] or '') ~= '' and KEYS[6] then
  local token, line, at, ended = ARGV[2], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  local records, age = string.match(ARGV[5], '^(%d+) %d+ (%d+)$')

  -- The run is the open one, nothing waits, and no field is damaged.
  local job = redis.pcall('HMGET', KEYS[4], 'last', 'status', 'token', 'fingerprints', 'attempt', 'fence',
    'started_at', 'scheduled_at', 'run_id', 'kind', 'host', 'terms', 'waiting', 'moved', 'beyond',
    'pauses', 'summary')
  local last = records and not job.err and is_number(job[1]) and tonumber(job[1])
  local is_usual = last and at <= last and job[2] == 'open' and job[3] == token
    and job[4] and job[4] ~= '' and string.gsub(job[4], '%d+ [^\n]*\n', '') == ''
    and is_number(job[5]) and is_number(job[6]) and is_number(job[7]) and is_number(job[8])
    and job[9] and job[10] and job[11] and job[12] and (job[13] or '') == '' and is_at_home(job[14])
    and (job[16] or '') == '' and not has_beyond(job[15], last)

  -- The summary has its newest outcomes (a letter each), its newest record, the last success and failures.
  -- Lines are found by their places, because each copy of a long text takes as long as a small command.
  local recent, failures, claimed, summary = '', '', 0, is_usual and job[17] or ''
  if summary ~= '' then
    local newest = string.find(summary, '\nn\t', 1, true)
    recent = newest and string.match(string.sub(summary, 1, newest - 1), '^[a-z ]+$')
    local success = recent and string.find(summary, '\n', newest + 1, true)
    local rest = success
    if success and string.sub(summary, success + 1, success + 2) == 's\t' then
      rest = string.find(summary, '\n', success + 1, true)
      local before = rest and number_of(summary, '\tfinished_at=', success, rest)
      claimed = rest and (number_of(summary, '\tfence=', success, rest) or 0) / 1000
      rest = before and before <= ended and before <= now + LEAD and rest
    end
    failures = rest and string.sub(summary, rest + 1)
    is_usual = failures and (failures == '' or string.sub(failures, 1, 2) == 'f\t')
    recent = is_usual and recent .. ' '
  end

  local state = is_usual and held_state(token)
  -- The first write is also the one that can fail, if the history has another type.
  if state and type(redis.pcall('XADD', KEYS[5], 'MAXLEN', '=', records, '*', unpack(ARGV, 10))) ~= 'table' then
    local span = job_span(KEYS[4])
    -- The search for old records visits all of them. A success that was claimed since this hour began, or
    -- this 24th of the age, has made it already.
    local period = math.min(3600 * 1000, tonumber(age) / 24)
    if not (claimed >= now - now % period and claimed <= now) then
      local oldest = older_than(tonumber(age))
      remove_old(KEYS[5], oldest)
      remove_old(KEYS[6], oldest)
    end
    keep_for(KEYS[5], span)
    recent = string.sub(recent .. 's', -(2 * RECENT_KEPT - 1))
    redis.call('HSET', KEYS[4], 'status', 'idle',
      'summary', recent .. '\nn' .. line .. 's' .. line .. failures)
    keep_for(KEYS[4], span)
    redis.call('HDEL', KEYS[2], 'token', 'lease_end', 'run_id')
    redis.call('HSET', KEYS[2], 'finished', finished_with(state, token))
    keep_for(KEYS[2], span)
    return unlock(token)
  end
end
