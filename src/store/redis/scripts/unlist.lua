-- Deletes the entries of hosts about a job.
--
-- KEYS  1 the job's listing
-- Reply the hosts that had an entry

local entries, hosts = redis.pcall('HGETALL', KEYS[1]), {}
for i = 1, #entries, 2 do
  hosts[#hosts + 1] = entries[i]
end
redis.call('DEL', KEYS[1])
return hosts
