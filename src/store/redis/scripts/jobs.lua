-- What is known of jobs and their locks.
--
-- KEYS  per job: lock, its state, job
-- ARGV  per job: exclusive (1/0)
-- Reply per job: last or '', fence, fingerprints (as kept),
--       holder: 0 | 1, its value, remaining in ms (-1 without TTL), the waiting list (as kept),
--       what is unacknowledged (as kept), the pauses (as kept), then of the open run: scheduled_at or '', run id, host,
--       attempt, started_at, remaining

local replies = {}
for i = 1, #ARGV do
  local lock = load_lock(KEYS[3 * i - 2], KEYS[3 * i - 1], ARGV[i] == '1')
  local job = load_job(KEYS[3 * i])
  local reply = { job and job.last or '', lock.fence, job and job.fingerprints or '', 0, '', 0,
    job and job.waited or '', job and job.noted or '', job and job.paused or '' }
  if lock.kind ~= 'absent' then
    reply[4], reply[5], reply[6] = 1, lock.value or OTHER_TYPE, key_remaining(lock)
  elseif lock.token ~= '' and lock.lease_end > now then
    reply[4], reply[5], reply[6] = 1, lock.token, lock.lease_end - now
  end
  local open = job and job.open
  if open then
    reply[10], reply[11], reply[12] = open.scheduled_at or '', open.run_id, open.host
    reply[13], reply[14] = open.attempt, tonumber(open.started_at)
    reply[15] = lease_remaining(lock, open.token)
  end
  replies[i] = reply
end
return replies
