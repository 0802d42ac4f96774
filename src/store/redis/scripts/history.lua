-- The history of a job: a stream, an entry a record; the names are those of the record's fields.

local RECORD = { 'run_id', 'kind', 'scheduled_at', 'until', 'count', 'started_at', 'finished_at',
  'host', 'outcome', 'reason', 'by', 'exit_code', 'signal', 'attempts', 'fence', 'output_tail' }

local function record_of_open(open, outcome, reason)
  return {
    run_id = open.run_id, kind = open.kind, outcome = outcome, reason = reason,
    scheduled_at = open.scheduled_at and text(open.scheduled_at), started_at = open.started_at,
    finished_at = text(now), host = open.host, attempts = text(open.attempt),
    fence = text(open.fence),
  }
end

-- Closes the open run, whose lease is over, and remembers its token. Its record, if anything ran.
local function interrupt(job, lock)
  local open = job.open
  job.open = nil
  if not ending(lock, open.token) then
    remember(lock, open.token, 'I')
  end
  if open.fence > 0 then
    return record_of_open(open, 'interrupted', 'its lease ended without a word from its host')
  end
end

-- The newest record when the next one may be merged into it: it must follow at once, that is,
-- the watermark (`follows`) stood at the end of the newest.
local function mergeable(runs, record)
  if record.run_id or not record.scheduled_at
    or (record.outcome ~= 'skipped' and record.outcome ~= 'missed'
      and record.outcome ~= 'unknown') then
    return nil
  end
  local newest = redis.call('XREVRANGE', runs, '+', '-', 'COUNT', 1)[1]
  if not newest then
    return nil
  end
  local kept = { id = newest[1] }
  for i = 1, #newest[2], 2 do
    kept[newest[2][i]] = newest[2][i + 1]
  end
  if kept.run_id or not kept.scheduled_at or kept.kind ~= record.kind
    or kept.outcome ~= record.outcome or kept.reason ~= record.reason or kept.by ~= record.by
    or tonumber(record.scheduled_at) <= tonumber(kept['until'] or kept.scheduled_at)
    or record.follows ~= (kept['until'] or kept.scheduled_at) then
    return nil
  end
  return kept
end

-- Adds a record; rows of equal verdicts share one.
local function append(runs, keep, record)
  local newest = mergeable(runs, record)
  if newest then
    record['until'] = record['until'] or record.scheduled_at
    record.scheduled_at = newest.scheduled_at
    record.count = text((newest.count or 1) + (record.count or 1))
    redis.call('XDEL', runs, newest.id)
  end
  local call = { 'XADD', runs }
  if keep then
    call[3], call[4], call[5] = 'MAXLEN', '=', keep
  end
  call[#call + 1] = '*'
  for _, name in ipairs(RECORD) do
    if record[name] then
      call[#call + 1] = name
      call[#call + 1] = record[name]
    end
  end
  redis.call(unpack(call))
end
