-- The ledger of a job.
--
-- Job (hash): last (ms), fingerprints (lines: first seen in ms, space, fingerprint), status: open
-- while a run is, and of that run: run_id, token, attempt, kind, fence, started_at, host,
-- scheduled_at ('' for a manual run), terms; waiting (see load_waiting); moved, if the job's lock
-- ever changed: NUMBER SINCE KEY, the key being that of the lock that the job uses. If that is not
-- the lock that the ledger lies under, the ledger refuses every claim. See protocol/replace.rs.
-- Also unacknowledged, what unacknowledged.lua noted: SINCE TILL ACKNOWLEDGED WANTED SERVER.
-- summary: see summary.lua.
-- beyond: the instants after last that are decided (ms, ascending, separated by spaces): hosts ran
-- them without the store. Also that of the open run, if another result has decided it. What last has passed
-- is removed when the list next changes.
-- pauses: a line a pause (see load_pauses).
-- Terms: deadline, rerun window in ms, max_reruns, max_attempts (0: no limit), reruns, yields (1/0).

local FINGERPRINTS_KEPT = 3
local BEYOND_KEPT = 100
local SHORT_FOR = 60 * 1000
local OVERLAP = 'overlap: the lock was held'

-- The waiting list: a line an entry, its fields separated by tabs.
local function load_waiting(key, text)
  local waiting = {}
  for line in string.gmatch(text or '', '[^\n]+') do
    local f = {}
    for field in string.gmatch(line, '[^\t]+') do
      f[#f + 1] = field
    end
    local entry = {
      at = tonumber(f[1]), kind = f[2], deadline = tonumber(f[3]), yields = f[4] == '1',
      attempts = tonumber(f[5]), reruns = tonumber(f[6]),
    }
    if not (entry.at and entry.deadline and entry.attempts and entry.reruns)
      or #f ~= 6 and #f ~= 12 then
      damaged(key, 'waiting is not lines of occurrences')
    end
    if f[7] then
      entry.crashed = {
        run_id = f[7], token = f[8], kind = f[9], fence = f[10], started_at = f[11], host = f[12],
      }
    end
    waiting[#waiting + 1] = entry
  end
  return waiting
end

local function waiting_text(waiting)
  local lines = {}
  for i, entry in ipairs(waiting) do
    local f = {
      text(entry.at), entry.kind, text(entry.deadline), entry.yields and '1' or '0',
      text(entry.attempts), text(entry.reruns),
    }
    local crashed = entry.crashed
    if crashed then
      f[7], f[8], f[9] = crashed.run_id, crashed.token, crashed.kind
      f[10], f[11], f[12] = crashed.fence, crashed.started_at, crashed.host
    end
    lines[i] = table.concat(f, '\t') .. '\n'
  end
  return table.concat(lines)
end

local function load_terms(text)
  local deadline, window, max_reruns, max_attempts, reruns, yields =
    string.match(text or '', '^(%-?%d+) (%d+) (%d+) (%d+) (%d+) ([01])$')
  return {
    deadline = tonumber(deadline or 0), window = tonumber(window or 0),
    max_reruns = tonumber(max_reruns or 0), max_attempts = tonumber(max_attempts or 0),
    reruns = tonumber(reruns or 0), yields = yields == '1',
  }
end

local function terms_text(terms)
  return string.format('%.0f %.0f %.0f %.0f %.0f %s', terms.deadline, terms.window,
    terms.max_reruns, terms.max_attempts, terms.reruns, terms.yields and '1' or '0')
end

-- What unacknowledged.lua noted, or nil.
local function load_short(kept)
  local since, till, acknowledged, wanted, server =
    string.match(kept or '', '^(%d+) (%d+) (%d+) (%d+) (.+)$')
  return since and {
    since = tonumber(since), till = tonumber(till), acknowledged = acknowledged, wanted = wanted,
    server = server,
  }
end

-- Whether an occurrence does not start because too few replicas acknowledge the claims of its job:
-- no claim was acknowledged since, and the last try is not long ago.
local function is_short(job, at)
  return job.short and job.short.since <= at and at <= job.short.till + SHORT_FOR
end

local function short_reason(job)
  local short = job.short
  return 'too few replicas of ' .. short.server .. ' acknowledged its claim: '
    .. short.acknowledged .. ' of ' .. short.wanted
end

-- The pauses: asked_at, since, the end or '-', who paused, who resumed or '-', and the reason, which is
-- the rest of the line. The last one alone can be in force.
local function load_pauses(key, kept)
  local pauses = {}
  for line in string.gmatch(kept or '', '[^\n]*\n') do
    local asked_at, since, till, by, resumed_by, reason =
      string.match(line, '^(%d+) (%d+) (%S+) (%S+) (%S+) (.*)\n$')
    if not asked_at or till ~= '-' and not tonumber(till) then
      damaged(key, 'pauses are not lines of pauses')
    end
    pauses[#pauses + 1] = {
      asked_at = tonumber(asked_at), since = tonumber(since), till = tonumber(till), by = by,
      resumed_by = resumed_by ~= '-' and resumed_by or nil, reason = reason,
    }
  end
  return pauses
end

local function pauses_text(pauses)
  local lines = {}
  for i, pause in ipairs(pauses) do
    lines[i] = text(pause.asked_at) .. ' ' .. text(pause.since) .. ' '
      .. (pause.till and text(pause.till) or '-') .. ' ' .. pause.by .. ' '
      .. (pause.resumed_by or '-') .. ' ' .. pause.reason .. '\n'
  end
  return table.concat(lines)
end

-- Whether a pause has not ended by then. Its beginning does not count: the clock may have been set
-- back since.
local function is_in_force(pause, at)
  return not pause.till or at < pause.till
end

-- The pause because of which nothing of the job starts at this instant, or nil.
local function paused_at(job, at)
  local newest = job.pauses[#job.pauses]
  return newest and is_in_force(newest, at) and newest or nil
end

-- Why an occurrence is skipped that was due, or would start, during this pause.
local function pause_verdict(pause)
  return 'paused by ' .. pause.by .. (pause.reason ~= '' and ': ' .. pause.reason or '')
end

local function load_job(key)
  local kept = on_key('HMGET', key, 'last', 'fingerprints', 'status', 'run_id', 'token',
    'attempt', 'kind', 'fence', 'started_at', 'host', 'terms', 'scheduled_at', 'waiting', 'moved',
    'unacknowledged', 'beyond', 'pauses', 'summary')
  if not kept[1] then
    return nil
  end
  local job = {
    key = key, last = number_in(key, 'last', kept[1]), fingerprints = kept[2] or '',
    waiting = load_waiting(key, kept[13]), waited = kept[13] or '', moved = kept[14] or '',
    noted = kept[15] or '', short = load_short(kept[15]), beyond = kept[16] or '',
    pauses = load_pauses(key, kept[17]), paused = kept[17] or '', summary = kept[18] or '',
  }
  for at in string.gmatch(job.beyond, '[^ ]+') do
    number_in(key, 'beyond', at)
  end
  job.went_beyond = job.beyond
  if job.moved ~= '' and not string.find(job.moved, '^%d+ %d+ .') then
    damaged(key, 'moved does not name a lock')
  end
  if string.gsub(job.fingerprints, '%d+ [^\n]*\n', '') ~= '' then
    damaged(key, 'fingerprints are not lines of an instant and a fingerprint')
  end
  if kept[3] == 'open' then
    for i = 4, 10 do
      if not kept[i] then
        damaged(key, 'a field of the open run is missing')
      end
    end
    number_in(key, 'started_at', kept[9])
    job.open = {
      run_id = kept[4], token = kept[5], attempt = count_in(key, 'attempt', kept[6]),
      kind = kept[7], fence = count_in(key, 'fence', kept[8]), started_at = kept[9],
      host = kept[10], terms = load_terms(kept[11]),
      scheduled_at = kept[12] and kept[12] ~= '' and number_in(key, 'scheduled_at', kept[12])
        or nil,
    }
  end
  return job
end

local function new_job(key, last)
  return {
    key = key, last = last, fingerprints = '', waiting = {}, waited = '', moved = '', beyond = '',
    went_beyond = '', noted = '', pauses = {}, paused = '', summary = '',
  }
end

-- The instants that are decided although the watermark lies before them, those after `base` alone.
local function beyond(job, base)
  local instants = {}
  for at in string.gmatch(job.beyond, '%-?%d+') do
    if tonumber(at) > base then
      instants[#instants + 1] = tonumber(at)
    end
  end
  return instants
end

local function beyond_text(instants)
  local words = {}
  for i, at in ipairs(instants) do
    words[i] = text(at)
  end
  return table.concat(words, ' ')
end

-- Adds an instant to those in order, unless it is among them.
local function add_instant(instants, added)
  for _, at in ipairs(instants) do
    if at == added then
      return
    end
  end
  instants[#instants + 1] = added
  table.sort(instants)
end

-- Those of the decided instants that the watermark has not passed, and the occurrence of the open run.
local function lasting(job)
  local base = job.fingerprints == '' and -math.huge or job.last
  local instants = {}
  for _, at in ipairs(beyond(job, -math.huge)) do
    if at > base or job.open and job.open.scheduled_at == at then
      instants[#instants + 1] = at
    end
  end
  return instants
end

-- Whether the ledger names this occurrence among those that are decided whatever the watermark.
local function is_decided_apart(job, decided)
  for _, at in ipairs(beyond(job, -math.huge)) do
    if at == decided then
      return true
    end
  end
  return false
end

-- Notes that an occurrence is decided, whatever lies before it. If there are too many of them, the
-- watermark moves over the oldest. A ledger without a schedule was begun by such a result, and the
-- next may be of an earlier occurrence: a move takes them all along. That of the open run is kept too, see
-- decide_open.
local function decide_beyond(job, decided)
  local base = job.fingerprints == '' and -math.huge or job.last
  if decided <= base then
    return
  end
  local instants = lasting(job)
  add_instant(instants, decided)
  while #instants > BEYOND_KEPT do
    job.last = math.max(job.last, table.remove(instants, 1))
  end
  local open = job.open and job.open.scheduled_at
  if open and is_decided_apart(job, open) then
    add_instant(instants, open)
  end
  job.beyond = beyond_text(instants)
end

-- Notes that the occurrence of the open run is decided if another run's result covers it, under this
-- token. The open run may be returned before it begins, and its occurrence must not wait again then.
local function decide_open(job, token, from, last)
  local at = job.open and job.open.token ~= token and job.open.scheduled_at
  if at and from and from <= at and at <= last then
    local instants = lasting(job)
    add_instant(instants, at)
    job.beyond = beyond_text(instants)
  end
end

-- The key of the lock that the job uses instead of this one, or nil.
local function moved_from(job, lock_key)
  local to = job and string.match(job.moved, '^%d+ %d+ (.*)$')
  return to ~= lock_key and to or nil
end

-- Whether a run under this token is among the data of a ledger, its end not on record.
local function carries(job, token)
  if job.open and job.open.token == token then
    return true
  end
  for _, entry in ipairs(job.waiting) do
    if entry.crashed and entry.crashed.token == token then
      return true
    end
  end
  return false
end

-- The fields of an open run in one order, as texts.
local function open_fields(open)
  return {
    open.run_id, open.token, text(open.attempt), open.kind, text(open.fence), open.started_at,
    open.host, terms_text(open.terms), open.scheduled_at and text(open.scheduled_at) or '',
  }
end

local function save_job(job)
  local open, waiting = job.open, waiting_text(job.waiting)
  local call = { 'HSET', job.key, 'last', text(job.last), 'fingerprints', job.fingerprints }
  if waiting ~= job.waited then
    call[7], call[8] = 'waiting', waiting
  end
  if job.beyond ~= job.went_beyond then
    call[#call + 1] = 'beyond'
    call[#call + 1] = job.beyond
  end
  local more = { 'status', 'idle' }
  if open then
    more = {
      'status', 'open', 'run_id', open.run_id, 'token', open.token, 'attempt', text(open.attempt),
      'kind', open.kind, 'fence', text(open.fence), 'started_at', open.started_at,
      'host', open.host, 'terms', terms_text(open.terms),
      'scheduled_at', open.scheduled_at and text(open.scheduled_at) or '',
    }
  end
  for _, word in ipairs(more) do
    call[#call + 1] = word
  end
  redis.call(unpack(call))
  keep_for(job.key, job_span(job.key))
end

-- Whether a run is to be repeated once its lease is over.
local function may_rerun(open)
  local terms = open.terms
  return open.scheduled_at and terms.reruns < terms.max_reruns
    and (terms.max_attempts == 0 or open.attempt < terms.max_attempts)
end

-- Puts an entry back: a rerun to the front, others in the order of their instants.
local function put_back(job, entry)
  local place = 1
  for _, other in ipairs(job.waiting) do
    if other.kind ~= 'rerun' and (entry.kind == 'rerun' or other.at >= entry.at) then
      break
    end
    place = place + 1
  end
  table.insert(job.waiting, place, entry)
end

-- Removes the entries that `drop` chooses, in order, and returns them.
local function take_waiting(job, drop)
  local kept, dropped = {}, {}
  for _, entry in ipairs(job.waiting) do
    local list = drop(entry) and dropped or kept
    list[#list + 1] = entry
  end
  job.waiting = kept
  return dropped
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
