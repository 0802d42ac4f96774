-- Keeps what there is of jobs, because a host lists them.
--
-- KEYS  per job: the lock's state, job, its history, its failures
-- ARGV  per job: for how long in ms
-- Reply 1

for i, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[math.floor((i + 3) / 4)])
end
return 1
