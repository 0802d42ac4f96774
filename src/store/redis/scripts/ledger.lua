-- Reads a whole ledger.
--
-- KEYS  1 lock, 2 its state, 3 job
-- ARGV  1 exclusive (1/0)
-- Reply empty without a ledger, else: last, fingerprints, waiting, moved, beyond (the instants after last
--       that hosts ran without the store), pauses, summary (as kept), then of the open run: run id,
--       token, attempt, kind, fence, started_at, host, terms, scheduled_at or '', how long its lease
--       lasts in ms, and when it ended, or ''

local job = load_job(KEYS[3])
if not job then
  return {}
end
local reply = { text(job.last), job.fingerprints, job.waited, job.moved, job.beyond,
  job.paused, job.summary }
local open = job.open
if open then
  local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
  for _, field in ipairs(open_fields(open)) do
    reply[#reply + 1] = field
  end
  reply[#reply + 1] = lease_remaining(lock, open.token)
  local ended_at = lease_ended_at(lock, open.token)
  reply[#reply + 1] = ended_at and text(ended_at) or ''
end
return reply
