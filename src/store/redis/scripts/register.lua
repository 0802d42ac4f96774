-- Makes jobs known: a ledger for a new one, which starts from now, or from a loss of data while
-- that is fresh (but none while the store recovers); a new schedule's fingerprint.
--
-- KEYS  1 store marker, then per job: lock, its state, job
-- ARGV  per job: exclusive (1/0), fingerprint, TTL in ms
-- Reply per job: decided_until, now, how long claims wait yet in ms, the head of the waiting list
--       (scheduled_at or '', kind or 'moved', deadline), the later instants that are decided, the
--       pauses (as kept), then
--       of the open run: scheduled_at or '', run id, host, attempt, started_at, remaining in ms

local longest = 0
for i = 3, #ARGV, 3 do
  longest = math.max(longest, tonumber(ARGV[i]))
end
local past = notice(KEYS[1], longest)
local replies = {}
for i = 1, #ARGV / 3 do
  local key, fingerprint = KEYS[3 * i + 1], ARGV[3 * i - 1]
  local wait = recovering(past, tonumber(ARGV[3 * i]))
  -- After a loss of data, a new job looks like one that was forgotten. Another host may still hold
  -- occurrences of that job from the recovery period, so the ledger must not advance past them.
  local beginning = forgot(past) or now
  local job = load_job(key)
  local forgotten = not job and wait > 0
  job = job or new_job(key, beginning)
  local moved = moved_from(job, KEYS[3 * i - 1])
  if not forgotten and not moved and not first_seen(job, fingerprint) then
    note(job, fingerprint, beginning)
    redis.call('HSET', key, 'last', text(job.last), 'fingerprints', job.fingerprints)
    keep_for(key, job_span(key))
  end
  local head = job.waiting[1] or {}
  local last = base(job, fingerprint)
  local reply = { last, now, wait, head.at or '', head.kind or '', head.deadline or 0,
    beyond_text(beyond(job, last)), job.paused }
  local open = job.open
  if moved then
    reply[4], reply[5] = '', 'moved'
  elseif open then
    local lock = load_lock(KEYS[3 * i - 1], KEYS[3 * i], ARGV[3 * i - 2] == '1')
    reply[9], reply[10], reply[11] = open.scheduled_at or '', open.run_id, open.host
    reply[12], reply[13] = open.attempt, tonumber(open.started_at)
    reply[14] = lease_remaining(lock, open.token)
  end
  replies[i] = reply
end
return replies
