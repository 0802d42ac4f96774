-- Takes an occurrence and its lock, or returns the reason why not. settled.lua and granted.lua come first and reply
-- in the usual cases; a rule about when a claim is granted, or that reads a further field, must hold
-- there too.
--
-- KEYS  1 lock, 2 its state, 3 store marker; with a job: 4 job, 5 its history, 6 its failures, and
--       unless in a Cluster 7 the failures of all jobs
-- ARGV  1 exclusive (1/0), 2 token, 3 TTL in ms, 4 run id,
--       5 'lock' | 'manual' | 'occurrence' | 'drops', 6 longest TTL of the host's job list in ms
--       for a lock: 7 how long it waits at least after a loss, in ms
--       for a manual run: 7 'refuse' | 'run' (if the job is paused)
--       for an occurrence: 7 kind, 8 scheduled_at, 9 not_before, 10 deadline, 11 prev or '',
--       12 fingerprint, 13 'skip' | 'wait' | the limit of the queue,
--       14 'miss' | 'leave' | the end of the catch-up window, 15 when the next one may start or '',
--       16 rerun window in ms, 17 max_reruns, 18 max_attempts, 19 what the history keeps,
--       20 if_last of a gap's answer or '', 21 how long before not_before it may be granted in ms,
--       then of each range it drops: from, until, count, outcome, reason
--       for drops: 7 fingerprint, 8 what the history keeps, 9 if_last, then the ranges
-- Reply a list, or a text if there is nothing but the first word:
--       granted FENCE ATTEMPT NOW MICROSECONDS (until it may start)
--         (then 1 if too few replicas acknowledged the claim before)
--       | recovering MS | early MS | running HOST RUN_ID ATTEMPT MS
--       | decided | gap LAST HORIZON (or '') BEYOND (the later instants that are decided) PAUSES (as kept)
--       | unknown | paused PAUSE (as kept)
--       | too_late | stale | ahead MS | dropped
--       | waits AT KIND DEADLINE ENTERED BY (or '') MS (-1 without TTL) | queue_full
--       | held BY MS (-1 without TTL) | finished | moved KEY (of the lock that the job uses)

local token, ttl, run_id, what = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local job = what ~= 'lock' and load_job(KEYS[4]) or nil
local keep = what == 'occurrence' and ARGV[19] or what == 'drops' and ARGV[8] or nil
local streams = { runs = KEYS[5], failures = KEYS[6], all = KEYS[7] }
local job_changed, lock_changed, records = false, false, {}

if KEYS[5] then
  check_history(KEYS[5])
end
local past = notice(KEYS[3], tonumber(ARGV[6]))
local forgotten_at = forgot(past)
local waits_for = what == 'lock' and math.max(ttl, tonumber(ARGV[7])) or ttl

local function grant_reply(attempt)
  local not_before = what == 'occurrence' and tonumber(ARGV[9]) or 0
  return { 'granted', lock.fence, attempt, now, math.max(0, not_before * 1000 - micros) }
end

local function grant(attempt)
  lock.fence, lock.run_id, lock_changed = next_fence(lock), run_id, true
  take(lock, token, ttl)
  return grant_reply(attempt)
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
  if not lasts and recovering(past, waits_for) > 0 then
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
  return grant_reply(open and open.attempt or 1)
end

local NO_TERMS = {
  deadline = 0, window = 0, max_reruns = 0, max_attempts = 0, reruns = 0, yields = false,
}

local function open_run(kind, scheduled_at, attempt, terms)
  if job.open then
    records[#records + 1] = interrupt(job, lock, holder(token))
  end
  local reply = grant(attempt)
  job.open = {
    run_id = run_id, token = token, attempt = attempt, kind = kind, fence = lock.fence,
    started_at = text(now), host = holder(token), scheduled_at = scheduled_at, terms = terms,
  }
  job.last = math.max(job.last, scheduled_at or job.last)
  job_changed = true
  return reply
end

local function manual()
  local pause = job and paused_at(job, now)
  if pause and ARGV[7] == 'refuse' then
    return { 'paused', pauses_text({ pause }) }
  end
  local how, by, remaining = standing(lock, token)
  if how == 'other' then
    return { 'held', by, remaining }
  end
  job = job or new_job(KEYS[4], forgotten_at or now)
  lock_changed = await_rerun(job, lock) or lock_changed
  return open_run('manual', nil, 1, NO_TERMS)
end

-- Why an occurrence does not start: too few replicas acknowledge the job's claims, or this reason.
local function because(scheduled_at, reason)
  return is_short(job, scheduled_at) and short_reason(job) or reason
end

local function not_started(kind, scheduled_at, outcome, reason)
  local record = {
    kind = kind, scheduled_at = text(scheduled_at), outcome = outcome, reason = reason,
    finished_at = text(now), host = holder(token), attempts = '0',
  }
  records[#records + 1] = record
  return record
end

-- Records a verdict that moves the watermark.
local function decide(kind, scheduled_at, outcome, reason)
  local record = not_started(kind, scheduled_at, outcome, reason)
  record.follows = text(job.last)
  job.last, job_changed = math.max(job.last, scheduled_at), true
  return record
end

-- What a host drops, each range as one record; the ranges stand in ARGV from `first` on.
local function drop_ranges(first)
  for i = first, #ARGV, 5 do
    local from, outcome, reason = tonumber(ARGV[i]), ARGV[i + 3], ARGV[i + 4]
    if outcome == 'missed' then
      reason = because(from, reason)
    end
    local record = decide('schedule', from, outcome, reason)
    if tonumber(ARGV[i + 2]) > 1 then
      record['until'], record.count = ARGV[i + 1], ARGV[i + 2]
    end
    job.last = math.max(job.last, tonumber(ARGV[i + 1]))
  end
end

-- The reply to a host that does not know how far the ledger has come.
local function gap(last)
  return { 'gap', last, past.horizon or '', beyond_text(beyond(job, last)), job.paused }
end

-- Whether one of these ranges covers an occurrence that is decided.
local function covers_decided(first)
  for _, at in ipairs(beyond(job, job.last)) do
    for i = first, #ARGV, 5 do
      if tonumber(ARGV[i]) <= at and at <= tonumber(ARGV[i + 1]) then
        return true
      end
    end
  end
  return false
end

-- Whether a host that has not noticed a loss of data records as `missed` what may have run.
local function misses_unknowable(first)
  for i = first, #ARGV, 5 do
    if past.horizon and ARGV[i + 3] == 'missed' and tonumber(ARGV[i]) <= past.horizon then
      return true
    end
  end
  return false
end

-- Whether a range is dropped as missed in which an occurrence was due during a pause.
local function misses_paused(first)
  for i = first, #ARGV, 5 do
    for _, pause in ipairs(job.pauses) do
      if ARGV[i + 3] == 'missed' and pause.since <= tonumber(ARGV[i + 1])
        and is_in_force(pause, tonumber(ARGV[i])) then
        return true
      end
    end
  end
  return false
end

local function is_beyond(scheduled_at)
  for _, at in ipairs(beyond(job, job.last)) do
    if at == scheduled_at then
      return true
    end
  end
  return false
end

local function drops()
  local last, newest = base(job, ARGV[7]), 0
  if tonumber(ARGV[9]) ~= last or covers_decided(10) or misses_unknowable(10)
    or misses_paused(10) then
    return gap(last)
  end
  for i = 10, #ARGV, 5 do
    newest = math.max(newest, tonumber(ARGV[i + 1]))
  end
  if newest > now + LEAD then
    return { 'early', newest - now }
  end
  drop_ranges(10)
  return { 'dropped' }
end

-- The reply that names the head of the waiting list.
local function waits(entered)
  local head, how, by, remaining = job.waiting[1], standing(lock, token)
  return {
    'waits', head.at, head.kind, head.deadline, entered and 1 or 0, how == 'other' and by or '',
    how == 'other' and remaining or 0,
  }
end

-- The place of an occurrence in the waiting list, or nil.
local function place_of(scheduled_at)
  for i, entry in ipairs(job.waiting) do
    if entry.at == scheduled_at then
      return i
    end
  end
end

-- Sets a watermark back that was written under a wrong clock. What waits beyond it is undecided
-- again.
local function correct(scheduled_at)
  local lines, changed = {}, false
  for at, seen in string.gmatch(job.fingerprints, '(%d+) ([^\n]*)\n') do
    if tonumber(at) > now + LEDGER_AHEAD then
      at, changed = text(now), true
    end
    lines[#lines + 1] = at .. ' ' .. seen .. '\n'
  end
  if changed then
    job.fingerprints, job_changed = table.concat(lines), true
  end
  if job.last > now + LEDGER_AHEAD then
    records[#records + 1] = {
      kind = 'schedule', outcome = 'unknown', finished_at = text(now), host = holder(token),
      attempts = '0', reason = "the ledger was ahead of the store's clock by "
        .. text(math.floor((job.last - now) / 1000)) .. ' s; the job continues from now',
    }
    job.last, job_changed = math.min(now, scheduled_at - 1), true
    local due = {}
    for _, at in ipairs(beyond(job, -math.huge)) do
      due[#due + 1] = at <= now and at or nil
    end
    job.beyond = beyond_text(due)
    local future = take_waiting(job, function(entry)
      return entry.at > job.last
    end)
    for _, entry in ipairs(future) do
      if entry.crashed then
        records[#records + 1] = record_of_crashed(entry,
          'its lease expired before its host reported a result; no rerun started in time',
          holder(token))
      end
    end
  end
end

-- Records and removes the entries that will not start: those whose deadline has passed, and those
-- from before a loss of data, because the store may have forgotten that they ran.
local function expire()
  local function unknown(entry)
    return entry.kind ~= 'rerun' and past.horizon and entry.at <= past.horizon
  end
  local late = take_waiting(job, function(entry)
    return entry.deadline < now or unknown(entry)
  end)
  for _, entry in ipairs(late) do
    if unknown(entry) then
      not_started(entry.kind, entry.at, 'unknown',
        'due before the store lost data: it may have run already')
    elseif entry.crashed then
      records[#records + 1] = record_of_crashed(entry,
        'its lease expired before its host reported a result; no rerun started in time',
        holder(token))
    elseif entry.kind ~= 'rerun' then
      not_started(entry.kind, entry.at, 'missed',
        because(entry.at, 'its start deadline had passed'))
    end
    job_changed = true
  end
end

-- Removes all that waits of a job that is paused, and records it as skipped. A rerun is not started
-- either: the crashed run gets its record.
local function skip_all(pause)
  local reason = pause_verdict(pause)
  for _, entry in ipairs(job.waiting) do
    if entry.crashed then
      records[#records + 1] = record_of_crashed(entry,
        'its lease expired before its host reported a result; no rerun started: ' .. reason,
        holder(token))
    elseif entry.kind ~= 'rerun' then
      not_started(entry.kind, entry.at, 'skipped', reason)
    end
    job_changed = true
  end
  job.waiting = {}
end

-- The pause because of which an occurrence is skipped: one that is in force when it would start, or one
-- during which it was due; or nil.
local function pause_of(scheduled_at, start)
  local pause = paused_at(job, start)
  for _, other in ipairs(job.pauses) do
    if not pause and other.since <= scheduled_at and is_in_force(other, scheduled_at) then
      pause = other
    end
  end
  return pause
end

-- Takes out what a newer occurrence replaces.
local function replace(drop, outcome, reason)
  for _, entry in ipairs(take_waiting(job, drop)) do
    not_started(entry.kind, entry.at, outcome, because(entry.at, reason))
    job_changed = true
  end
end

-- The first of the waiting list is claimed.
local function head()
  if standing(lock, token) == 'other' then
    return waits(true)
  end
  local entry = table.remove(job.waiting, 1)
  if entry.crashed then
    records[#records + 1] =
      record_of_crashed(entry, 'its lease expired before its host reported a result', holder(token))
  end
  return open_run(entry.kind, entry.at, entry.attempts + 1, {
    deadline = entry.deadline, window = tonumber(ARGV[16]), max_reruns = tonumber(ARGV[17]),
    max_attempts = tonumber(ARGV[18]), reruns = entry.reruns, yields = entry.yields,
  })
end

-- An occurrence that is not undecided.
local function known(scheduled_at)
  local place = place_of(scheduled_at)
  if place == 1 then
    return head()
  elseif place then
    return waits(true)
  end
  local open = job.open
  if open and open.scheduled_at == scheduled_at then
    local remaining = lease_remaining(lock, open.token)
    return { 'running', open.host, open.run_id, open.attempt, remaining }
  elseif job.last > now + LEAD then
    return { 'ahead', job.last - now }
  end
  return { 'decided' }
end

-- An undecided occurrence that may start: it does, or waits, or is skipped.
local function start(kind, scheduled_at, deadline, overlap, yields)
  local how, by, remaining = standing(lock, token)
  local free = how ~= 'other'
  if not free and overlap == 'skip' then
    local open = job.open
    if open and open.scheduled_at and open.token == lock.token and is_short(job, scheduled_at) then
      -- That claim waits for replicas. It holds the lock, but nothing runs.
      decide(kind, scheduled_at, 'skipped', short_reason(job))
    else
      decide(kind, scheduled_at, 'skipped', OVERLAP).by = by
    end
    return { 'held', by, remaining }
  end
  if free then
    replace(function(entry)
      return entry.kind == 'catch_up' and entry.yields
    end, 'missed', 'a newer occurrence came due (catch_up: latest)')
  end
  if free and #job.waiting == 0 then
    return open_run(kind, scheduled_at, 1, {
      deadline = deadline, window = tonumber(ARGV[16]), max_reruns = tonumber(ARGV[17]),
      max_attempts = tonumber(ARGV[18]), reruns = 0, yields = yields,
    })
  elseif overlap == 'skip' or overlap == 'wait' and free then
    -- The head starts first; it is not this claim's to drop.
    return waits(false)
  end
  local waiting_kind = kind == 'schedule' and 'queue' or kind
  if overlap == 'wait' then
    replace(function(entry)
      return entry.yields
    end, 'skipped', 'superseded: a newer occurrence took its place')
  else
    local count = 0
    for _, entry in ipairs(job.waiting) do
      count = count + (entry.kind ~= 'rerun' and 1 or 0)
    end
    if count >= tonumber(overlap) then
      decide(waiting_kind, scheduled_at, 'skipped', because(scheduled_at, 'the queue was full'))
      return { 'queue_full' }
    end
  end
  job.last, job_changed = math.max(job.last, scheduled_at), true
  table.insert(job.waiting, {
    at = scheduled_at, kind = waiting_kind, deadline = deadline, yields = yields, attempts = 0,
    reruns = 0,
  })
  return waits(true)
end

-- Where a ledger begins that an occurrence is the first to ask for. After a loss another host may
-- hold the preceding occurrence, so the ledger does not advance past it.
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
  if await_rerun(job, lock) then
    job_changed, lock_changed = true, true
  end
  correct(scheduled_at)
  local waited = place_of(scheduled_at)
  expire()
  if waited and not place_of(scheduled_at) then
    return { past.horizon and scheduled_at <= past.horizon and 'unknown' or 'too_late' }
  end
  local in_force = paused_at(job, now)
  if in_force then
    skip_all(in_force)
    if waited then
      return { 'paused', pauses_text({ in_force }) }
    end
  end
  if scheduled_at <= job.last then
    return known(scheduled_at)
  end
  local last = base(job, ARGV[12])
  local differs = ARGV[11] ~= '' and tonumber(ARGV[11]) > last
  if ARGV[20] ~= '' then
    differs = tonumber(ARGV[20]) ~= last
  end
  if differs or covers_decided(22) or misses_unknowable(22) or misses_paused(22) then
    return gap(last)
  end
  drop_ranges(22)
  if is_beyond(scheduled_at) then
    job.last, job_changed = math.max(job.last, scheduled_at), true
    return { 'decided' }
  end
  if past.horizon and scheduled_at <= past.horizon then
    decide(kind, scheduled_at, 'unknown',
      'due before the store lost data: it may have run already')
    return { 'unknown' }
  end
  local deadline, overlap, late = tonumber(ARGV[10]), ARGV[13], ARGV[14]
  local yields = overlap == 'wait'
  local pause = pause_of(scheduled_at, math.max(tonumber(ARGV[9]), now))
  if pause and not (now > deadline and late == 'leave') then
    decide(kind, scheduled_at, 'skipped', pause_verdict(pause))
    return { 'paused', pauses_text({ pause }) }
  end
  if now > deadline then
    if late == 'leave' then
      return { 'stale' }
    elseif late == 'miss' then
      decide(kind, scheduled_at, 'missed', because(scheduled_at, 'its start deadline had passed'))
      return { 'too_late' }
    end
    kind = 'catch_up'
    if ARGV[15] ~= '' and tonumber(ARGV[15]) <= now then
      decide(kind, scheduled_at, 'missed',
        because(scheduled_at, 'a newer occurrence came due (catch_up: latest)'))
      return { 'too_late' }
    elseif tonumber(late) < now then
      decide(kind, scheduled_at, 'missed',
        because(scheduled_at, 'its catch_up_window had passed'))
      return { 'too_late' }
    end
    deadline, yields = tonumber(late), ARGV[15] ~= ''
    overlap = yields and 'wait' or '4294967295'
  end
  return start(kind, scheduled_at, deadline, overlap, yields)
end

if ending(lock, token) then
  return { 'finished' }
end
local moved_to = moved_from(job, KEYS[1])
if moved_to then
  return { 'moved', moved_to }
end
local reply = own()
if not reply then
  local wait = recovering(past, waits_for)
  if wait > 0 then
    reply = { 'recovering', wait }
  elseif what == 'occurrence' then
    reply = occurrence()
  elseif what == 'manual' then
    reply = manual()
  elseif what == 'drops' then
    job = job or new_job(KEYS[4], tonumber(ARGV[9]))
    if not first_seen(job, ARGV[7]) then
      note(job, ARGV[7], forgotten_at or now)
      job_changed = true
    end
    reply = drops()
  else
    local how, by, remaining = standing(lock, token)
    reply = how == 'other' and { 'held', by, remaining } or grant(1)
  end
end
if reply[1] == 'granted' and job and job.noted ~= '' then
  reply[6] = 1
end
if job_changed then
  save_job(job)
end
if lock_changed then
  save_lock(lock, what ~= 'lock', ttl)
end
for _, record in ipairs(records) do
  add_record(job, streams, keep, record)
end
set_key(lock)
return reply
