-- The history of a job: a stream, an entry a record; the names are those of the record's fields. One of
-- several nodes adds the number of the proposal that the record came with (`ballot`).
--
-- Failures are also in a second stream, so that successes do not displace them, and without output in a
-- third one, which has those of all jobs. In a Cluster there is no third one, because it would be in
-- another slot. Functions take the three keys as `streams`: runs, failures, all.

local RECORD = { 'run_id', 'kind', 'scheduled_at', 'until', 'count', 'started_at', 'finished_at',
  'host', 'outcome', 'reason', 'by', 'exit_code', 'signal', 'attempts', 'fence', 'output_tail',
  'usage', 'ballot' }
local FAILURES = { failed = true, timed_out = true, lease_lost = true, interrupted = true }
local ALL_FAILURES_KEPT = 1000

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
  remember_interrupted(lock, open.token)
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
  remember_interrupted(lock, open.token)
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

-- Whether a record may be merged into the one before it: it must follow at once, that is, the
-- watermark (`follows`) stood at the end of the one before. One that cannot be read is left as it is.
local function follows_on(kept, record)
  local outcome, ends = record.outcome, tonumber(kept['until'] or kept.scheduled_at or '')
  return not record.run_id and record.scheduled_at
    and (outcome == 'skipped' or outcome == 'missed' or outcome == 'unknown')
    and not kept.run_id and ends and tonumber(kept.scheduled_at) and tonumber(kept.count or 1)
    and kept.kind == record.kind and kept.outcome == outcome
    and kept.reason == record.reason and kept.by == record.by
    and tonumber(record.scheduled_at) > ends
    and record.follows == (kept['until'] or kept.scheduled_at)
end

local function fields_of(entry)
  local fields = { id = entry[1] }
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  return fields
end

-- The newest record when the next one may be merged into it.
local function mergeable(runs, record)
  local newest = on_key('XREVRANGE', runs, '+', '-', 'COUNT', 1)[1]
  local kept = newest and fields_of(newest)
  return kept and follows_on(kept, record) and kept or nil
end

local function is_provisional(record)
  return record.run_id and (record.outcome == 'interrupted' or record.outcome == 'unknown')
end

-- Whether the result of a run replaces this record: one that stands for the run, or one that calls its
-- occurrence unknown.
local function is_replaced_by(known, record)
  if known.run_id then
    return known.run_id == record.run_id and is_provisional(known)
  end
  return known.outcome == 'unknown' and not known['until'] and known.scheduled_at
    and known.scheduled_at == record.scheduled_at
end

-- Removes the record that the result of a run replaces.
local function remove_replaced(stream, record)
  local entries = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', 1000)
  for _, entry in ipairs(entries) do
    if is_replaced_by(fields_of(entry), record) then
      redis.call('XDEL', stream, entry[1])
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

-- Adds a record to a stream under this id, without the field `except`, and removes all but the newest
-- `most` entries. Returns the reply, which may be an error.
local function add(stream, most, id, record, except, job)
  local call = { 'XADD', stream }
  if most then
    call[3], call[4], call[5] = 'MAXLEN', '=', most
  end
  call[#call + 1] = id
  for _, name in ipairs(RECORD) do
    if record[name] and name ~= except then
      call[#call + 1] = name
      call[#call + 1] = record[name]
    end
  end
  if job then
    call[#call + 1], call[#call + 2] = 'job', job
  end
  return redis.pcall(unpack(call))
end

-- Adds a record to the streams of failures. One that has another type takes none, and the history
-- reports that when it is read.
local function add_failure(streams, id, record, most, age)
  local stream, all = streams.failures, streams.all
  local added = add(stream, most, id, record)
  if type(added) == 'table' and not is_of_other_kind(added) then
    -- The clock was set back: the stream has later entries than the history.
    added = add(stream, most, '*', record)
  end
  if type(added) ~= 'table' then
    keep_for(stream, job_span(stream))
  end
  local job = all and string.match(streams.runs, ':runs:([^:]+)$')
  if job and type(add(all, ALL_FAILURES_KEPT, '*', record, 'output_tail', job)) ~= 'table' then
    if age then
      remove_old(all, older_than(age))
    end
    keep_for(all, STATE_TTL)
  end
end

-- Adds a record; rows of equal verdicts share one. `keep`: how many records and failures stay, and for
-- how long in ms.
local function append(streams, keep, record)
  local runs = streams.runs
  if record.replaces and record.run_id then
    for _, stream in pairs(streams) do
      remove_replaced(stream, record)
    end
  end
  local newest = mergeable(runs, record)
  if newest then
    record['until'] = record['until'] or record.scheduled_at
    record.scheduled_at = newest.scheduled_at
    record.count = text((newest.count or 1) + (record.count or 1))
    redis.call('XDEL', runs, newest.id)
  end
  local records, failures, age = string.match(keep or '', '^(%d+) (%d+) (%d+)$')
  age = tonumber(age or '')
  local id = add(runs, records, '*', record)
  if is_of_other_kind(id) then
    damaged(runs, OTHER_KIND)
  elseif type(id) == 'table' then
    error(id)
  end
  if age then
    remove_old(runs, older_than(age))
  end
  if age and streams.failures then
    remove_old(streams.failures, older_than(age))
  end
  keep_for(runs, job_span(runs))
  if FAILURES[record.outcome] and streams.failures then
    add_failure(streams, id, record, failures, age)
  end
end
