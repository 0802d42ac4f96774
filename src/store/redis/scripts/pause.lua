-- Pauses or resumes a job. See protocol/pause.rs.
--
-- KEYS  1 lock, 2 store marker, 3 job
-- ARGV  1 the store's clock when the request was made in ms, 2 who asks, 3 'pause' | 'resume';
--       for a pause: 4 its end in ms or '', 5 the reason or ''
-- Reply done | not_paused | superseded | absent (no ledger) | recovering MS
--       | moved KEY (of the lock that the job uses)

local PAUSES_KEPT = 4
local asked_at, by, order, till, reason = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local job = load_job(KEYS[3])
if not job then
  local wait = recovering(notice(KEYS[2], 0), 0)
  return wait > 0 and { 'recovering', wait } or { 'absent' }
end
local moved_to = moved_from(job, KEYS[1])
if moved_to then
  return { 'moved', moved_to }
end

local newest = job.pauses[#job.pauses]
if newest and asked_at <= newest.asked_at then
  local same = asked_at == newest.asked_at
  if order == 'resume' then
    same = same and newest.resumed_by == by
  else
    same = same and not newest.resumed_by and newest.by == by and newest.till == till
      and newest.reason == reason
  end
  return { same and 'done' or 'superseded' }
end
local paused = newest and is_in_force(newest, asked_at) and table.remove(job.pauses)
if order == 'resume' then
  if not paused then
    return { 'not_paused' }
  end
  paused.asked_at, paused.till, paused.resumed_by = asked_at, asked_at, by
else
  paused = {
    asked_at = asked_at, since = paused and paused.since or asked_at, till = till, by = by,
    reason = reason,
  }
end
local kept = {}
for _, pause in ipairs(job.pauses) do
  if is_in_force(pause, job.last) then
    kept[#kept + 1] = pause
  end
end
kept[#kept + 1] = paused
while #kept > PAUSES_KEPT do
  table.remove(kept, 1)
end
redis.call('HSET', KEYS[3], 'pauses', pauses_text(kept))
keep_for(KEYS[3], job_span(KEYS[3]))
return { 'done' }
