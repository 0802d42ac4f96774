-- Remembers which jobs a host lists, so that it can find those that its next list leaves out.
--
-- KEYS  1 the jobs of the host (hash: job -> when the host wrote it, by the store's clock)
-- ARGV  1 how long they are remembered in ms, then per job: name, listed (1/0), when the host
--       wrote it. A late copy must not remove a job that the host has listed since. A late copy that
--       brings a job back does no harm, because the job's listing shows that the host withdrew it.
-- Reply whether the key was of another type than cronlatch writes, and was removed (1/0); then all
--       jobs that the host lists, if asked without jobs

local removed = remove_of_other_kind(KEYS[1]) and 1 or 0
for i = 2, #ARGV, 3 do
  local kept = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '')
  if not (kept and is_late(tonumber(ARGV[i + 2]), kept)) then
    if ARGV[i + 1] == '1' then
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
    else
      redis.call('HDEL', KEYS[1], ARGV[i])
    end
  end
end
if #ARGV > 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return { removed }
end
local jobs = { removed }
for i, field in ipairs(redis.call('HGETALL', KEYS[1])) do
  if i % 2 == 1 then
    jobs[#jobs + 1] = field
  end
end
return jobs
