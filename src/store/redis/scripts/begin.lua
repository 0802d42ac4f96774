-- Creates the ledgers of new jobs, and moves the ledgers of jobs that were disabled up to the instant
-- from which they count. Creates none while the store recovers. See protocol/begin.rs.
--
-- KEYS  1 store marker, then per job: its ledger, its lock
-- ARGV  per job: fingerprint, TTL in ms, instant from which it counts in ms, again (1/0)
-- Reply per job: 1 done | 0 not created while the store recovers, or the ledger is damaged

local past = notice(KEYS[1], 0)

local function begin(key, lock_key, fingerprint, ttl, at, again)
  at = math.min(at, now)
  -- Listed before the loss, so the store has forgotten its ledger.
  local forgotten = past.lost_at and at < past.lost_at
  local job = load_job(key)
  if not job then
    if recovering(past, ttl) > 0 then
      return 0
    end
    local start = forgotten and past.lost_at or at
    job = new_job(key, start)
    note(job, fingerprint, start)
  elseif moved_from(job, lock_key) then
    -- Only the ledger under the lock that the job uses counts.
    return 1
  else
    local last, known = job.last, job.fingerprints
    -- A ledger without a schedule was made by a manual run, or by a holder after a loss.
    if again or known == '' then
      job.last = math.max(last, at)
    end
    note(job, fingerprint, forgotten and forgot(past) or now)
    if job.last == last and job.fingerprints == known then
      return 1
    end
  end
  redis.call('HSET', key, 'last', text(job.last), 'fingerprints', job.fingerprints)
  keep_for(key, job_span(key))
  return 1
end

local replies = {}
for i = 1, (#KEYS - 1) / 2 do
  local at = 4 * (i - 1)
  -- A damaged ledger concerns its own job alone.
  local fine, reply = pcall(begin, KEYS[2 * i], KEYS[2 * i + 1], ARGV[at + 1], tonumber(ARGV[at + 2]),
    tonumber(ARGV[at + 3]), ARGV[at + 4] == '1')
  replies[i] = fine and reply or 0
end
return replies
