-- Notes in a job's hash that too few replicas acknowledged its claims, or that they do again. The
-- note says since which occurrence, until when, how many of how many, and on which server. Only
-- Redis has replicas, so the note is no part of the rules in src/store/protocol.
--
-- KEYS  1 job, 2 its history
-- ARGV  1 scheduled_at or '' (acknowledged again), 2 token, 3 acknowledged, 4 wanted, 5 server
-- Reply 1

local job = load_job(KEYS[1])
if not job then
  return 1
end
if ARGV[1] == '' then
  redis.call('HSET', KEYS[1], 'unacknowledged', '')
  return 1
end
local since = tonumber(ARGV[1])
if is_short(job, now) then
  since = math.min(since, job.short.since)
end
local note = { text(since), text(now), ARGV[3], ARGV[4], ARGV[5] }
redis.call('HSET', KEYS[1], 'unacknowledged', table.concat(note, ' '))

-- What was skipped while the claim waited for the replicas overlapped no run.
if not (job.open and job.open.token == ARGV[2]) or not is_history(KEYS[2]) then
  return 1
end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local record = newest and fields_of(newest) or {}
local at = tonumber(record.scheduled_at or '')
if at and at > tonumber(ARGV[1]) and record.reason == OVERLAP then
  record.reason, record.by = short_reason(load_job(KEYS[1])), nil
  redis.call('XDEL', KEYS[2], newest[1])
  record.amended = true
  add_record(job, { runs = KEYS[2] }, nil, record)
end
return 1
