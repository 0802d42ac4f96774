-- Writes verdict and record, closes the run, releases by token, wakes those who wait.
--
-- KEYS  1 lock, 2 its state, 3 store marker; with a job: 4 job, 5 its history
-- ARGV  1 exclusive (1/0), 2 token, 3 channel of releases, 4 give_back (1/0), 5 records kept,
--       6 with a record (1/0), then the record's names and values
-- Reply R released | L lost

local token, keep = ARGV[2], ARGV[5]
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local job = KEYS[4] and load_job(KEYS[4])
local job_changed, records = false, {}

local before = ending(lock, token)
if before == 'R' or before == 'L' then
  return before
end

local recorded = ARGV[6] == '1'
if recorded then
  local record = {}
  for i = 7, #ARGV, 2 do
    record[ARGV[i]] = ARGV[i + 1]
  end
  record.follows = job and text(job.last)
  records[1] = record
  local last = tonumber(record['until'] or record.scheduled_at)
  if last then
    job = job or new_job(KEYS[4], last)
    job.last = math.max(job.last, last)
    job_changed = true
  end
end

-- Closes the open run if it is this token's. Its verdict comes with the request, or is written
-- here, or the occurrence is undecided again.
local function close()
  local open = job.open
  job.open, job_changed = nil, true
  if recorded or not open.scheduled_at then
    return
  end
  if ARGV[4] ~= '1' then
    records[#records + 1] =
      record_of_open(open, 'interrupted', 'its host closed it without a verdict')
  elseif open.attempt > 1 then
    -- A rerun stays open, with the attempt it had: its reruns are counted.
    open.attempt, open.fence = open.attempt - 1, 0
    job.open = open
  elseif job.last == open.scheduled_at then
    job.last = open.prev_last
  else
    local record = record_of_open(open, 'missed',
      'its claim was given up after later occurrences were decided')
    record.started_at, record.fence, record.attempts = nil, nil, '0'
    records[#records + 1] = record
  end
end

if job and job.open and job.open.token == token then
  close()
end

local granted, held = lock.token == token, holds(lock, token)
-- Forgotten with the store's data, and granted to nobody since: ours to the end.
local forgotten = lock.kind == 'absent' and lock.fence == 0 and notice(KEYS[3], 0).lost_at
local reply = (held or forgotten or (granted and not lock.exclusive)) and 'R' or 'L'
remember(lock, token, reply)

if job_changed then
  save_job(job)
end
if lock.fence == 0 then
  save_lock(lock)
elseif granted then
  redis.call('HSET', lock.state, 'token', '', 'lease_end', '0', 'run_id', '',
    'finished', lock.finished)
else
  redis.call('HSET', lock.state, 'finished', lock.finished)
end
for _, record in ipairs(records) do
  append(KEYS[5], keep, record)
end
if held then
  redis.call('DEL', lock.key)
end
if held or granted then
  -- Without the right to publish, those who wait still ask again by themselves.
  redis.pcall('PUBLISH', ARGV[3], token)
end
return reply
