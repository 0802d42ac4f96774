-- The ledger of a job.
--
-- Job (hash): last (ms), fingerprints (lines: first seen in ms, space, fingerprint), status: open
-- while a run is, and of that run: run_id, token, attempt, kind, fence, started_at, host,
-- prev_last, scheduled_at ('' for a manual run).

local FINGERPRINTS_KEPT = 3

local function load_job(key)
  local kept = redis.call('HMGET', key, 'last', 'fingerprints', 'status', 'run_id', 'token',
    'attempt', 'kind', 'fence', 'started_at', 'host', 'prev_last', 'scheduled_at')
  if not kept[1] then
    return nil
  end
  local job = { key = key, last = tonumber(kept[1]), fingerprints = kept[2] or '' }
  if kept[3] == 'open' then
    job.open = {
      run_id = kept[4], token = kept[5], attempt = tonumber(kept[6]), kind = kept[7],
      fence = tonumber(kept[8]), started_at = kept[9], host = kept[10],
      prev_last = tonumber(kept[11]), scheduled_at = tonumber(kept[12]),
    }
  end
  return job
end

local function new_job(key, last)
  return { key = key, last = last, fingerprints = '' }
end

local function save_job(job)
  local open = job.open
  if open then
    redis.call('HSET', job.key, 'last', text(job.last), 'fingerprints', job.fingerprints,
      'status', 'open', 'run_id', open.run_id, 'token', open.token, 'attempt', open.attempt,
      'kind', open.kind, 'fence', text(open.fence), 'started_at', open.started_at,
      'host', open.host, 'prev_last', text(open.prev_last),
      'scheduled_at', open.scheduled_at and text(open.scheduled_at) or '')
  else
    redis.call('HSET', job.key, 'last', text(job.last), 'fingerprints', job.fingerprints,
      'status', 'idle')
  end
end

-- When a schedule was first seen, or nil.
local function first_seen(job, fingerprint)
  for at, seen in string.gmatch(job.fingerprints, '(%d+) ([^\n]*)\n') do
    if seen == fingerprint then
      return tonumber(at)
    end
  end
end

-- Notes a schedule, whose occurrences count from `beginning`; of more than FINGERPRINTS_KEPT the
-- one first seen is forgotten. A ledger without any was made by something else than a registration,
-- and from where it begins on nothing is decided.
local function note(job, fingerprint, beginning)
  if first_seen(job, fingerprint) then
    return
  end
  local lines = {}
  for line in string.gmatch(job.fingerprints, '[^\n]+\n') do
    lines[#lines + 1] = line
  end
  if #lines == 0 then
    beginning = math.min(beginning, job.last)
  end
  lines[#lines + 1] = text(beginning) .. ' ' .. fingerprint .. '\n'
  job.fingerprints = table.concat(lines, '', math.max(1, #lines - FINGERPRINTS_KEPT + 1))
end

-- From where on the schedule's occurrences are undecided.
local function base(job, fingerprint)
  return math.max(job.last, first_seen(job, fingerprint) or job.last)
end
