-- Deletes the data of a job, unless its lock is held. Also deletes damaged keys.
--
-- KEYS  1 lock, 2 its state, 3 job, 4 its history, 5 its failures, and unless in a Cluster
--       6 the failures of all jobs
-- ARGV  1 exclusive (1/0), 2 the lock is cronlatch's own key (1/0), 3 delete the lock's state
--       too (1/0), 4 although the lock is held (1/0), 5 'look' | 'delete', 6 the job's name
-- Reply held BY MS (-1 without TTL) | forgotten COUNT, the number of keys deleted

local value = ARGV[1] == '1' and redis.pcall('GET', KEYS[1])
local kept = redis.pcall('HMGET', KEYS[2], 'token', 'lease_end')
local is_garbage = is_of_other_kind(value)

if ARGV[4] ~= '1' then
  local lease_end = tonumber(kept[2] or '') or 0
  if type(value) == 'string' then
    return { 'held', holder(value), redis.call('PTTL', KEYS[1]) }
  elseif is_garbage then
    return { 'held', OTHER_TYPE, redis.call('PTTL', KEYS[1]) }
  elseif kept[1] and kept[1] ~= '' and lease_end > now then
    return { 'held', holder(kept[1]), lease_end - now }
  end
end
if ARGV[5] == 'look' then
  return { 'forgotten', 0 }
end
local count = redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])
local all = KEYS[6] and redis.pcall('XREVRANGE', KEYS[6], '+', '-') or {}
for _, entry in ipairs(all) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'job' and entry[2][i + 1] == ARGV[6] then
      redis.call('XDEL', KEYS[6], entry[1])
    end
  end
end
if ARGV[3] == '1' then
  count = count + redis.call('DEL', KEYS[2])
  -- A string may be the lease of a living holder, and stays.
  if is_garbage and ARGV[2] == '1' then
    count = count + redis.call('DEL', KEYS[1])
  end
end
return { 'forgotten', count }
