-- Closes an open run whose lease is over, as interrupted.
--
-- KEYS  1 lock, 2 its state, 3 job, 4 its history, 5 store marker, 6 the job's failures,
--       and unless in a Cluster 7 the failures of all jobs
-- ARGV  1 exclusive (1/0), 2 run id, 3 what the history keeps
-- Reply 1 done | 0 there is no such run, its lease lasts, it waits to be run again, or moved

-- Its holder may be about to re-assert the run.
if recovering(notice(KEYS[5], 0), 0) > 0 then
  return 0
end
local lock = load_lock(KEYS[1], KEYS[2], ARGV[1] == '1')
local job = load_job(KEYS[3])
if moved_from(job, KEYS[1]) then
  return 0
end
if job and await_rerun(job, lock) then
  save_job(job)
  save_lock(lock, true, 0)
  return 0
end
local open = job and job.open
if not open or open.run_id ~= ARGV[2] or lease_remaining(lock, open.token) > 0 then
  return 0
end
check_history(KEYS[4])
local record = interrupt(job, lock)
if lock.token == open.token then
  forget_holder(lock)
end
save_job(job)
save_lock(lock, true, 0)
add_record(job, { runs = KEYS[4], failures = KEYS[6], all = KEYS[7] }, ARGV[3], record)
return 1
