-- Replaces a ledger, if it still is as it was read and no run of it holds a lease.
--
-- KEYS  1 lock, 2 its state, 3 store marker, 4 job
-- ARGV  1 exclusive (1/0), 2 TTL of the job's leases in ms, 3 how many fields the expected ledger
--       has (0: none is expected), those fields, then the fields of the new one; the fields are
--       last, fingerprints, waiting, moved, beyond, pauses, summary and, with an open run, those of
--       open_fields
--       (job.lua)
-- Reply done | changed | leased MS | recovering MS

local job = load_job(KEYS[4])
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local expects = tonumber(ARGV[3])

local function is(first, last)
  local kept = job and { text(job.last), job.fingerprints, waiting_text(job.waiting), job.moved,
    job.beyond, job.paused, job.summary } or {}
  for _, field in ipairs(job and job.open and open_fields(job.open) or {}) do
    kept[#kept + 1] = field
  end
  if #kept ~= last - first + 1 then
    return false
  end
  for i, field in ipairs(kept) do
    if field ~= ARGV[first + i - 1] then
      return false
    end
  end
  return true
end

local new = 4 + expects
if is(new, #ARGV) then
  return { 'done' }
end
local wait = recovering(notice(KEYS[3], 0), tonumber(ARGV[2]))
if wait > 0 then
  return { 'recovering', wait }
elseif not is(4, new - 1) then
  return { 'changed' }
end
local left = job and job.open and lease_remaining(lock, job.open.token) or 0
if left > 0 then
  return { 'leased', left }
end
local waited, went_beyond = job and job.waited or '', job and job.beyond or ''
job = new_job(KEYS[4], tonumber(ARGV[new]))
job.fingerprints, job.waiting = ARGV[new + 1], load_waiting(KEYS[4], ARGV[new + 2])
job.waited = waited
job.beyond, job.went_beyond = ARGV[new + 4], went_beyond
if ARGV[new + 7] then
  job.open = {
    run_id = ARGV[new + 7], token = ARGV[new + 8], attempt = tonumber(ARGV[new + 9]),
    kind = ARGV[new + 10], fence = tonumber(ARGV[new + 11]), started_at = ARGV[new + 12],
    host = ARGV[new + 13], terms = load_terms(ARGV[new + 14]),
    scheduled_at = tonumber(ARGV[new + 15]),
  }
end
-- If their verdicts arrive later, they replace the records written here.
for _, entry in ipairs(job.waiting) do
  if entry.crashed then
    remember_interrupted(lock, entry.crashed.token)
  end
end
save_job(job)
redis.call('HSET', job.key, 'moved', ARGV[new + 3], 'pauses', ARGV[new + 5], 'summary',
  ARGV[new + 6])
if lock.remembered then
  save_lock(lock, true, tonumber(ARGV[2]))
end
return { 'done' }
