-- What is known of jobs and their locks.
--
-- KEYS  per job: lock, its state, job, its history (without which the job cannot run)
-- ARGV  per job: exclusive (1/0)
-- Reply per job: last or '', fence, fingerprints (as kept),
--       holder: 0 | 1, its value, remaining in ms (-1 without TTL), the waiting list (as kept),
--       what is unacknowledged, the pauses and the summary (as kept), then of the open run:
--       scheduled_at or '', run id, host,
--       attempt, started_at, remaining

local replies = {}
for i = 1, #ARGV do
  local lock = load_lock(KEYS[4 * i - 3], KEYS[4 * i - 2], ARGV[i] == '1')
  local job = load_job(KEYS[4 * i - 1])
  on_key('XREVRANGE', KEYS[4 * i], '+', '-', 'COUNT', 0)
  local reply = { job and job.last or '', lock.fence, job and job.fingerprints or '', 0, '', 0,
    job and job.waited or '', job and job.noted or '', job and job.paused or '',
    job and job.summary or '' }
  if lock.kind ~= 'absent' then
    reply[4], reply[5], reply[6] = 1, lock.value or OTHER_TYPE, key_remaining(lock)
  elseif lock.token ~= '' and lock.lease_end > now then
    reply[4], reply[5], reply[6] = 1, lock.token, lock.lease_end - now
  end
  local open = job and job.open
  if open then
    reply[11], reply[12], reply[13] = open.scheduled_at or '', open.run_id, open.host
    reply[14], reply[15] = open.attempt, tonumber(open.started_at)
    reply[16] = lease_remaining(lock, open.token)
  end
  replies[i] = reply
end
return replies
