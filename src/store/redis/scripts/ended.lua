-- The short way of a finish, before the rest of the rules is loaded: a run of an occurrence has succeeded
-- under its lease, or a lock without a job is released in time, and nothing is unusual in any key. It does
-- what finish.lua would do, in less than half of its time. Whatever is not known to be usual goes on to the
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

if ARGV[1] == '1' and ARGV[6] == '1' and KEYS[6] then
  local token = ARGV[2]

  -- The record by its names, and as a line of the summary (see summary.lua).
  local record, parts, is_plain = {}, {}, true
  for i = 7, #ARGV, 2 do
    local name, value = ARGV[i], ARGV[i + 1]
    record[name] = value
    if name ~= 'output_tail' then
      parts[#parts + 1] = name .. '=' .. value
      is_plain = is_plain and not string.find(value, '[%%\t\n\r]')
    end
  end
  local line = '\t' .. table.concat(parts, '\t') .. '\n'
  local at, ended = tonumber(record.scheduled_at), tonumber(record.finished_at)
  local records, age = string.match(ARGV[5], '^(%d+) %d+ (%d+)$')

  -- The run is the open one, nothing waits, and no field is damaged.
  local job, last
  if is_plain and record.outcome == 'succeeded' and record.run_id and at and ended and records
    and not record['until'] and not record.count then
    job = redis.pcall('HMGET', KEYS[4], 'last', 'status', 'token', 'fingerprints', 'attempt', 'fence',
      'started_at', 'scheduled_at', 'run_id', 'kind', 'host', 'terms', 'waiting', 'moved', 'beyond',
      'pauses', 'summary')
    last = not job.err and is_number(job[1]) and tonumber(job[1])
  end
  local is_usual = last and at <= last and job[2] == 'open' and job[3] == token
    and job[4] and job[4] ~= '' and string.gsub(job[4], '%d+ [^\n]*\n', '') == ''
    and is_number(job[5]) and is_number(job[6]) and is_number(job[7]) and is_number(job[8])
    and job[9] and job[10] and job[11] and job[12] and (job[13] or '') == '' and is_at_home(job[14])
    and (job[16] or '') == ''
  -- Instants that the watermark has passed stay until others are added.
  for at in string.gmatch(is_usual and job[15] or '', '[^ ]+') do
    is_usual = is_usual and #at <= 17 and string.find(at, '^%-?%d+$') and tonumber(at) <= last
  end

  -- The summary has its newest outcomes (a letter each), its newest record, the last success and failures.
  local recent, success, failures = '', nil, ''
  if is_usual and job[17] and job[17] ~= '' then
    local rest
    recent, rest = string.match(job[17], '^([a-z ]+)\nn\t[^\n]*\n(.*)$')
    success, failures = string.match(rest or '', '^(s\t[^\n]*\n)(.*)$')
    failures = failures or rest
    local before = success and tonumber(string.match(success, '\tfinished_at=(%d+)') or '')
    is_usual = recent and (failures == '' or string.sub(failures, 1, 2) == 'f\t')
      and (not success or before and before <= ended and before <= now + LEAD)
    recent = is_usual and recent .. ' '
  end

  local state = is_usual and held_state(token)
  -- The first write is also the one that can fail, if the history has another type.
  if state and type(redis.pcall('XADD', KEYS[5], 'MAXLEN', '=', records, '*', unpack(ARGV, 7))) ~= 'table' then
    remove_old(KEYS[5], older_than(tonumber(age)))
    remove_old(KEYS[6], older_than(tonumber(age)))
    keep_for(KEYS[5], job_span(KEYS[5]))
    recent = string.sub(recent .. 's', -(2 * RECENT_KEPT - 1))
    redis.call('HSET', KEYS[4], 'status', 'idle',
      'summary', recent .. '\nn' .. line .. 's' .. line .. failures)
    keep_for(KEYS[4], job_span(KEYS[4]))
    redis.call('HDEL', KEYS[2], 'token', 'lease_end', 'run_id')
    redis.call('HSET', KEYS[2], 'finished', finished_with(state, token))
    keep_for(KEYS[2], job_span(KEYS[2]))
    return unlock(token)
  end
end
