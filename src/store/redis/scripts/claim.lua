-- Takes an occurrence and its lock, or says why not.
--
-- KEYS  1 lock, 2 its state, 3 store marker; with a job: 4 job, 5 its history
-- ARGV  1 exclusive (1/0), 2 token, 3 TTL in ms, 4 run id, 5 'lock' | 'manual' | 'occurrence',
--       6 longest TTL of the host's job list in ms
--       for an occurrence: 7 kind, 8 scheduled_at, 9 not_before, 10 deadline, 11 prev or '',
--       12 fingerprint, 13 'skip' | 'wait', 14 max_reruns, 15 records kept,
--       16 if_last of a gap's answer or '', then of each range it drops:
--       from, until, count, outcome, reason
-- Reply granted FENCE ATTEMPT NOW | recovering MS | early MS | running HOST RUN_ID ATTEMPT MS
--       | decided | gap LAST HORIZON (or '') | unknown | too_late | held BY MS (-1 without TTL)
--       | finished

local token, ttl, run_id, what = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local job = what ~= 'lock' and load_job(KEYS[4]) or nil
local keep = ARGV[15]
local job_changed, lock_changed, records = false, false, {}

local past = notice(KEYS[3], tonumber(ARGV[6]))
local forgotten_at = forgot(past)

local function grant(attempt)
  lock.fence, lock.run_id, lock_changed = next_fence(lock), run_id, true
  take(lock, token, ttl)
  return { 'granted', lock.fence, attempt, now }
end

local function own()
  local open = job and job.open and job.open.token == token and job.open
  local granted = lock.token == token
  if not (granted or open or holds(lock, token)) then
    return nil
  end
  local how, by, remaining = standing(lock, token)
  if how == 'other' then
    return { 'held', by, remaining }
  end
  -- Old data may name a holder whose lease has ended since, and know nothing of the next.
  local lasts = holds(lock, token) or granted and lock.lease_end > now
  if not lasts and recovering(past, ttl) > 0 then
    return nil
  end
  if not granted then
    lock.fence, lock.run_id = next_fence(lock), run_id
  end
  take(lock, token, ttl)
  lock_changed = true
  if open then
    open.fence, job_changed = lock.fence, true
  end
  return { 'granted', lock.fence, open and open.attempt or 1, now }
end

local function open_run(kind, scheduled_at, attempt)
  if job.open then
    records[#records + 1] = interrupt(job, lock)
  end
  local reply = grant(attempt)
  job.open = {
    run_id = run_id, token = token, attempt = attempt, kind = kind, fence = lock.fence,
    started_at = text(now), host = holder(token), prev_last = job.last,
    scheduled_at = scheduled_at,
  }
  job.last = math.max(job.last, scheduled_at or job.last)
  job_changed = true
  return reply
end

local function manual()
  local how, by, remaining = standing(lock, token)
  if how == 'other' then
    return { 'held', by, remaining }
  end
  job = job or new_job(KEYS[4], forgotten_at or now)
  return open_run('manual', nil, 1)
end

local function not_started(kind, scheduled_at, outcome, reason)
  local record = {
    kind = kind, scheduled_at = text(scheduled_at), outcome = outcome, reason = reason,
    finished_at = text(now), host = holder(token), attempts = '0', follows = text(job.last),
  }
  records[#records + 1] = record
  return record
end

-- What the answer to a gap drops, each range as one record.
local function drop_ranges()
  for i = 17, #ARGV, 5 do
    local record = not_started('schedule', tonumber(ARGV[i]), ARGV[i + 3], ARGV[i + 4])
    if tonumber(ARGV[i + 2]) > 1 then
      record['until'], record.count = ARGV[i + 1], ARGV[i + 2]
    end
    job.last = math.max(job.last, tonumber(ARGV[i + 1]))
    job_changed = true
  end
end

-- The attempt this would be, or nil and the answer.
local function judge(scheduled_at)
  if scheduled_at > job.last then
    local last = base(job, ARGV[12])
    local gap = ARGV[11] ~= '' and tonumber(ARGV[11]) > last
    if ARGV[16] ~= '' then
      gap = tonumber(ARGV[16]) ~= last
    end
    if gap then
      return nil, { 'gap', last, past.horizon or '' }
    end
    drop_ranges()
    return 1
  end
  local open = job.open
  if not open or open.scheduled_at ~= scheduled_at then
    return nil, { 'decided' }
  end
  local remaining = lease_remaining(lock, open.token)
  if remaining == 0 and open.attempt <= tonumber(ARGV[14]) then
    return open.attempt + 1
  end
  return nil, { 'running', open.host, open.run_id, open.attempt, remaining }
end

-- Where a ledger begins that an occurrence is the first to ask for. After a loss another host may
-- have the occurrence before it in hand: the ledger does not close over it.
local function before_first(scheduled_at, prev)
  local last = prev or scheduled_at - 1
  if not forgotten_at then
    return last
  elseif last > forgotten_at or scheduled_at <= past.horizon then
    return math.min(last, forgotten_at)
  end
  return prev and prev - 1 or last
end

local function occurrence()
  local kind, scheduled_at, prev = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[11])
  if tonumber(ARGV[9]) > now then
    return { 'early', tonumber(ARGV[9]) - now }
  end
  if not job or not first_seen(job, ARGV[12]) then
    job = job or new_job(KEYS[4], before_first(scheduled_at, prev))
    note(job, ARGV[12], forgotten_at or now)
    job_changed = true
  end
  local attempt, answer = judge(scheduled_at)
  if answer then
    return answer
  end
  local rerun = attempt > 1
  if not rerun and past.horizon and scheduled_at <= past.horizon then
    not_started(kind, scheduled_at, 'unknown',
      'due before the store lost data: nobody knows whether it ran')
    job.last, job_changed = scheduled_at, true
    return { 'unknown' }
  end
  if not rerun and now > tonumber(ARGV[10]) then
    not_started(kind, scheduled_at, 'missed', 'its start deadline had passed')
    job.last, job_changed = scheduled_at, true
    return { 'too_late' }
  end
  local how, by, remaining = standing(lock, token)
  if how == 'other' then
    if not rerun and ARGV[13] == 'skip' then
      not_started(kind, scheduled_at, 'skipped', 'overlap: the lock was held').by = by
      job.last, job_changed = scheduled_at, true
    end
    return { 'held', by, remaining }
  end
  return open_run(rerun and 'rerun' or kind, scheduled_at, attempt)
end

if ending(lock, token) then
  return { 'finished' }
end
local reply = own()
if not reply then
  local wait = recovering(past, ttl)
  if wait > 0 then
    reply = { 'recovering', wait }
  elseif what == 'occurrence' then
    reply = occurrence()
  elseif what == 'manual' then
    reply = manual()
  else
    local how, by, remaining = standing(lock, token)
    reply = how == 'other' and { 'held', by, remaining } or grant(1)
  end
end
if job_changed then
  save_job(job)
end
if lock_changed then
  save_lock(lock)
end
for _, record in ipairs(records) do
  append(KEYS[5], keep, record)
end
set_key(lock)
return reply
