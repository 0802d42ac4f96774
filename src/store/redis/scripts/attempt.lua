-- Notes that a further attempt of an open run is about to start.
--
-- KEYS  1 job, 2 lock
-- ARGV  1 token, 2 attempt
-- Reply 1 noted | 0 the run is not open under this token

local job = load_job(KEYS[1])
local open = job and job.open
if not open or open.token ~= ARGV[1] or moved_from(job, KEYS[2]) then
  return 0
end
if tonumber(ARGV[2]) > open.attempt then
  redis.call('HSET', KEYS[1], 'attempt', ARGV[2])
end
return 1
