-- The history of a job: a stream, an entry a record; the names are those of the record's fields. One of
-- several nodes adds the number of the proposal that the record came with (`ballot`).

local RECORD = { 'run_id', 'kind', 'scheduled_at', 'until', 'count', 'started_at', 'finished_at',
  'host', 'outcome', 'reason', 'by', 'exit_code', 'signal', 'attempts', 'fence', 'output_tail', 'ballot' }

local function record_of_open(open, outcome, reason)
  return {
    run_id = open.run_id, kind = open.kind, outcome = outcome, reason = reason,
    scheduled_at = open.scheduled_at and text(open.scheduled_at), started_at = open.started_at,
    finished_at = text(now), host = open.host, attempts = text(open.attempt),
    fence = text(open.fence),
  }
end

-- Closes the open run and remembers its token. Its lease is over; or the job takes no lock and
-- another run begins: the ledger keeps the newest alone, and the record of the one before is
-- provisional. 'by' is the host whose claim closes it; it reports the verdict.
local function interrupt(job, lock, by)
  local open = job.open
  job.open = nil
  if not ending(lock, open.token) then
    remember(lock, open.token, 'I')
  end
  local reason = 'its lease expired before its host reported a result'
  if lease_remaining(lock, open.token) > 0 then
    reason = 'another run of the job began before its host reported a result (scope: none); '
      .. 'the result replaces this record'
    by = nil
  end
  local record = record_of_open(open, 'interrupted', reason)
  record.by = by
  return record
end

-- Moves an open run whose lease is over to the head of the waiting list, if it is to be run again
-- (and the watermark was not set back over its occurrence). Returns whether it did.
local function await_rerun(job, lock)
  local open = job.open
  if not open or not may_rerun(open) or open.scheduled_at > job.last
    or lease_remaining(lock, open.token) > 0 then
    return false
  end
  job.open = nil
  if not ending(lock, open.token) then
    remember(lock, open.token, 'I')
  end
  local ended_at = lease_ended_at(lock, open.token) or now
  put_back(job, {
    at = open.scheduled_at, kind = 'rerun', deadline = ended_at + open.terms.window,
    yields = false, attempts = open.attempt, reruns = open.terms.reruns + 1,
    crashed = {
      run_id = open.run_id, token = open.token, kind = open.kind, fence = text(open.fence),
      started_at = open.started_at, host = open.host,
    },
  })
  return true
end

-- The record of a run that was to be repeated. 'by' as above.
local function record_of_crashed(entry, reason, by)
  local crashed = entry.crashed
  return {
    run_id = crashed.run_id, kind = crashed.kind, outcome = 'interrupted', reason = reason,
    scheduled_at = text(entry.at), started_at = crashed.started_at, finished_at = text(now),
    host = crashed.host, attempts = text(entry.attempts), fence = crashed.fence, by = by,
  }
end

-- The newest record when the next one may be merged into it: it must follow at once, that is,
-- the watermark (`follows`) stood at the end of the newest.
local function mergeable(runs, record)
  if record.run_id or not record.scheduled_at
    or (record.outcome ~= 'skipped' and record.outcome ~= 'missed'
      and record.outcome ~= 'unknown') then
    return nil
  end
  local newest = on_key('XREVRANGE', runs, '+', '-', 'COUNT', 1)[1]
  if not newest then
    return nil
  end
  local kept = { id = newest[1] }
  for i = 1, #newest[2], 2 do
    kept[newest[2][i]] = newest[2][i + 1]
  end
  local ends = tonumber(kept['until'] or kept.scheduled_at)
  -- An entry that cannot be read is left as it is.
  if kept.run_id or not ends or not tonumber(kept.scheduled_at) or not tonumber(kept.count or 1)
    or kept.kind ~= record.kind
    or kept.outcome ~= record.outcome or kept.reason ~= record.reason or kept.by ~= record.by
    or tonumber(record.scheduled_at) <= ends
    or record.follows ~= (kept['until'] or kept.scheduled_at) then
    return nil
  end
  return kept
end

-- Removes the provisional record of a run whose host has reported the result after all.
local function remove_provisional(runs, run_id)
  for _, entry in ipairs(redis.call('XREVRANGE', runs, '+', '-', 'COUNT', 1000)) do
    local fields = {}
    for i = 1, #entry[2], 2 do
      fields[entry[2][i]] = entry[2][i + 1]
    end
    local outcome = fields.outcome
    if fields.run_id == run_id and (outcome == 'interrupted' or outcome == 'unknown') then
      redis.call('XDEL', runs, entry[1])
      return
    end
  end
end

-- Whether a history can take a record.
local function is_history(runs)
  return not is_of_other_kind(redis.pcall('XREVRANGE', runs, '+', '-', 'COUNT', 0))
end

-- Fails, before anything is written, if a history can take no record.
local function check_history(runs)
  if not is_history(runs) then
    damaged(runs, OTHER_KIND)
  end
end

-- Adds a record; rows of equal verdicts share one.
local function append(runs, keep, record)
  if record.replaces and record.run_id then
    remove_provisional(runs, record.run_id)
  end
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
  on_key(unpack(call))
  keep_for(runs, job_span(runs))
end
