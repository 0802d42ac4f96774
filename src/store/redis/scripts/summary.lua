-- The summary of a job (a field of its hash): its newest verdicts, for people. See protocol/summary.rs.
-- ended.lua reads and writes this text, too.
--
-- A line of the newest outcomes, oldest first, separated by spaces: a letter, and with a run whose host
-- may still report another outcome `:` and its id. Then a line a record: `n` the newest, `s` the last
-- success, `f` the last failures, newest first; and its fields, each after a tab: name=value.

local FAILURES_NOTED = 4
local LETTERS = { succeeded = 's', failed = 'f', timed_out = 't', lease_lost = 'l', stopped = 'x',
  interrupted = 'i', skipped = 'k', missed = 'm', unknown = 'u' }
local ESCAPES = { ['%'] = '%25', ['\t'] = '%09', ['\n'] = '%0A', ['\r'] = '%0D' }
-- Fields that only the history has.
local HISTORY_ONLY = { output_tail = true, usage = true, ballot = true }
local CHARACTERS = { ['%25'] = '%', ['%09'] = '\t', ['%0A'] = '\n', ['%0D'] = '\r' }

local function load_summary(kept)
  local summary, rows = { recent = {}, failures = {} }, 0
  for line in string.gmatch(kept, '([^\n]*)\n') do
    rows = rows + 1
    if rows == 1 then
      for word in string.gmatch(line, '[^ ]+') do
        summary.recent[#summary.recent + 1] = word
      end
    else
      local record = {}
      for name, value in string.gmatch(line, '\t([%w_]+)=([^\t]*)') do
        record[name] = string.gsub(value, '%%%x%x', CHARACTERS)
      end
      local tag = string.sub(line, 1, 1)
      if tag == 'f' then
        summary.failures[#summary.failures + 1] = record
      else
        summary[tag] = record
      end
    end
  end
  return summary
end

local function summary_line(tag, record)
  local parts = { tag }
  for _, name in ipairs(RECORD) do
    if record[name] and not HISTORY_ONLY[name] then
      parts[#parts + 1] = name .. '=' .. string.gsub(record[name], '[%%\t\n\r]', ESCAPES)
    end
  end
  return table.concat(parts, '\t') .. '\n'
end

local function summary_text(summary)
  local lines = { table.concat(summary.recent, ' ') .. '\n' }
  for _, tag in ipairs({ 'n', 's' }) do
    if summary[tag] then
      lines[#lines + 1] = summary_line(tag, summary[tag])
    end
  end
  for _, record in ipairs(summary.failures) do
    lines[#lines + 1] = summary_line('f', record)
  end
  return table.concat(lines)
end

-- Removes the provisional outcome of a run whose host has reported the result.
local function withdraw(summary, result)
  local recent, failures = {}, {}
  for _, word in ipairs(summary.recent) do
    if string.sub(word, 3) ~= result.run_id then
      recent[#recent + 1] = word
    end
  end
  for _, record in ipairs(summary.failures) do
    if not is_replaced_by(record, result) then
      failures[#failures + 1] = record
    end
  end
  summary.recent, summary.failures = recent, failures
  if summary.n and is_replaced_by(summary.n, result) then
    summary.n = nil
  end
end

-- Whether a record is later than the one that is kept: a result may be delivered long after its run. A
-- kept one from the future was written under a clock that was wrong.
local function is_later(known, record)
  local at = known and tonumber(known.finished_at or '')
  local ended = tonumber(record.finished_at or '')
  return not at or at > now + LEAD or ended ~= nil and ended >= at
end

local function note_outcome(summary, record)
  if record.outcome == 'unknown' and not record.run_id and not record.scheduled_at then
    return
  end
  local word = LETTERS[record.outcome] or 'u'
  if is_provisional(record) then
    word = word .. ':' .. record.run_id
  end
  for _ = 1, math.min(tonumber(record.count or 1), RECENT_KEPT) do
    table.insert(summary.recent, word)
  end
  while #summary.recent > RECENT_KEPT do
    table.remove(summary.recent, 1)
  end
end

local function note_failure(summary, record)
  local failures = { record }
  for _, known in ipairs(summary.failures) do
    if #failures < FAILURES_NOTED and is_provisional(failures[#failures]) then
      failures[#failures + 1] = known
    end
  end
  summary.failures = failures
end

-- Notes a record in the summary of its job. 'amended': the newest one is written again.
local function summarize(job, record)
  local summary = load_summary(job.summary)
  if record.replaces and record.run_id then
    withdraw(summary, record)
  end
  if not record.amended then
    note_outcome(summary, record)
  end
  if record.outcome == 'succeeded' and is_later(summary.s, record) then
    summary.s = record
  elseif FAILURES[record.outcome] and is_later(summary.failures[1], record) then
    note_failure(summary, record)
  end
  local newest, known = {}, summary.n
  for name, value in pairs(record) do
    newest[name] = value
  end
  if known and follows_on(known, record) then
    newest['until'] = record['until'] or record.scheduled_at
    newest.scheduled_at = known.scheduled_at
    newest.count = text((known.count or 1) + (record.count or 1))
  end
  summary.n = newest
  job.summary = summary_text(summary)
  redis.call('HSET', job.key, 'summary', job.summary)
end

-- Adds a record to the history of a job, and to its summary if it has a ledger.
local function add_record(job, streams, keep, record)
  if job then
    summarize(job, record)
  end
  append(streams, keep, record)
end
