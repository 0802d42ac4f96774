-- Writes verdict and record, closes the run, releases the lock by its token, and notifies the waiting hosts.
-- ended.lua comes first and writes the usual finish; a rule about what a finish writes, or that reads a further
-- field, must hold there too.
--
-- KEYS  1 lock, 2 its state, 3 store marker; with a job: 4 job, 5 its history, 6 its failures, and
--       unless in a Cluster 7 the failures of all jobs
-- ARGV  1 exclusive (1/0), 2 token, 3 channel of releases, 4 give_back (1/0), 5 what the history keeps,
--       6 with a record (1/0), then 7 if it is of a success of one occurrence: its line in the summary,
--       8 scheduled_at, 9 finished_at, otherwise three times '', then the record's names and values
-- Reply R released | L lost | M and the key of the lock that the job uses now

local token, keep = ARGV[2], ARGV[5]
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local job = KEYS[4] and load_job(KEYS[4])
local streams = { runs = KEYS[5], failures = KEYS[6], all = KEYS[7] }
local job_changed, records = false, {}

local before = ending(lock, token)
if before == 'R' or before == 'L' then
  return before
end

local moved_to = moved_from(job, KEYS[1])
if moved_to and (not before or carries(job, token)) then
  local granted, held = lock.token == token, holds(lock, token)
  if granted then
    forget_holder(lock)
    save_lock(lock, true, 0)
  end
  if held then
    redis.call('DEL', lock.key)
  end
  if held or granted then
    redis.pcall('PUBLISH', ARGV[3], token)
  end
  return 'M' .. moved_to
end

local recorded = ARGV[6] == '1'
if recorded then
  local record = {}
  for i = 10, #ARGV, 2 do
    record[ARGV[i]] = ARGV[i + 1]
  end
  record.follows = job and text(job.last)
  local open = job and job.open and job.open.token == token
  -- More runs without a lock can overlap than tokens are kept, so the oldest are forgotten. After a loss
  -- of data the ledger may not know the run, and have called its occurrence unknown.
  record.replaces = before == 'I' or not lock.exclusive or record.scheduled_at and not open
  records[1] = record
  local from = tonumber(record.scheduled_at)
  local last = tonumber(record['until'] or record.scheduled_at)
  -- What a host with a fast clock believed due is decided when it is due.
  if last and last <= now + LEAD then
    -- No host has registered the job here, so occurrences before this result are undecided.
    job = job or new_job(KEYS[4], record['until'] and last or last - 1)
    if record['until'] then
      job.last = math.max(job.last, last)
    else
      decide_beyond(job, last)
    end
    decide_open(job, token, from, last)
    job_changed = true
  end
  local decided = job and take_waiting(job, function(entry)
    local crashed = entry.crashed and entry.crashed.token == token
    return crashed or entry.kind ~= 'rerun' and from and from <= entry.at and entry.at <= last
  end)
  job_changed = job_changed or decided and #decided > 0
end

-- Closes the open run if it has this token. Its verdict is in the request or is written here, or the
-- occurrence waits again. If a run without the store decided it in the meantime, it does not; a rerun
-- depends only on the run that it repeats.
local function close()
  local open = job.open
  job.open, job_changed = nil, true
  if recorded or not open.scheduled_at then
    return
  end
  if ARGV[4] ~= '1' then
    records[#records + 1] =
      record_of_open(open, 'interrupted', 'its host closed it without a verdict')
  elseif open.scheduled_at <= job.last
    and (open.kind == 'rerun' or not is_decided_apart(job, open.scheduled_at)) then
    put_back(job, {
      at = open.scheduled_at, kind = open.kind, deadline = open.terms.deadline,
      yields = open.terms.yields, attempts = math.max(open.attempt - 1, 0),
      reruns = open.terms.reruns,
    })
  end
end

if job and job.open and job.open.token == token then
  close()
end

local granted, held = lock.token == token, holds(lock, token)
-- The lock was lost with the store's data and not granted since: this token held it to the end.
local forgotten = lock.kind == 'absent' and lock.fence == 0 and notice(KEYS[3], 0).lost_at
local reply = (held or forgotten or (granted and not lock.exclusive)) and 'R' or 'L'
-- If the history cannot be written, the lock is released nevertheless. The token is not remembered, so
-- that the request can be sent again and adds its record once the history is repaired.
local unrecorded = #records > 0 and not is_history(KEYS[5])
if unrecorded then
  records = {}
else
  remember(lock, token, reply)
end

if job_changed then
  save_job(job)
end
if granted then
  forget_holder(lock)
end
save_lock(lock, KEYS[4], 0)
for _, record in ipairs(records) do
  add_record(job, streams, keep, record)
end
if held then
  redis.call('DEL', lock.key)
end
if held or granted then
  -- Without the right to publish, waiting hosts still retry by themselves.
  redis.pcall('PUBLISH', ARGV[3], token)
end
if unrecorded then
  damaged(KEYS[5], OTHER_KIND)
end
return reply
