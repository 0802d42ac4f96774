-- Remembers which jobs a host lists, so that it can find those that its next list leaves out.
--
-- KEYS  1 the jobs of the host (hash: job -> when the host wrote it, by the store's clock; REVISION -> their
--       revision, and when the key expires)
-- ARGV  1 how long they are remembered in ms, 2 a revision, then per job: name, listed (1/0), when the host
--       wrote it. A late copy must not remove a job that the host has listed since. A late copy that
--       brings a job back does no harm, because the job's listing shows that the host withdrew it.
--       Without jobs, 2 is the revision that the caller knows, or empty.
-- Reply whether the key was of another type than cronlatch writes, and was removed (1/0). If asked without
--       jobs, and their revision is not the one that the caller knows: also the revision (empty: none) and
--       all jobs that the host lists

-- No job can have this name, and versions without revisions skip it.
local REVISION = ':revision'

-- The revision, or an empty text. A version without revisions leaves it as it is when it writes jobs, but sets
-- the TTL anew.
local function revision_of(key)
  local kept = redis.call('HGET', key, REVISION)
  local expires = tonumber(string.match(kept or '', ' (%d+)$') or '')
  local is_of_last_write = expires and math.abs(now + redis.call('PTTL', key) - expires) < 1000
  return is_of_last_write and kept or ''
end

local removed = remove_of_other_kind(KEYS[1]) and 1 or 0
if #ARGV > 2 then
  -- Without jobs the key goes, too.
  redis.call('HDEL', KEYS[1], REVISION)
  for i = 3, #ARGV, 3 do
    local kept = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '')
    if not (kept and is_late(tonumber(ARGV[i + 2]), kept)) then
      if ARGV[i + 1] == '1' then
        redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
      else
        redis.call('HDEL', KEYS[1], ARGV[i])
      end
    end
  end
  if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('HSET', KEYS[1], REVISION, ARGV[2] .. ' ' .. text(now + ARGV[1]))
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
  end
  return { removed }
end
local revision = revision_of(KEYS[1])
if revision ~= '' and revision == ARGV[2] then
  return { removed }
end
local jobs = { removed, revision }
for i, field in ipairs(redis.call('HGETALL', KEYS[1])) do
  if i % 2 == 1 and field ~= REVISION then
    jobs[#jobs + 1] = field
  end
end
return jobs
