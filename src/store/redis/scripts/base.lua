-- What every script begins with: the clock and the marker of the store.
--
-- Every rule stands once, in src/store/protocol as Rust; the scripts do the same and are compared
-- with it call by call. Numbers that are kept are written with %.0f: Lua's own way turns large
-- ones into 1.7e+15. Read everything first, then write: outcome, history, lock.

local FORMAT = 1
local AFTERMATH = 3600 * 1000
local SUCCESSOR_SKEW = 1000
local STATE_TTL = 30 * 24 * 3600 * 1000

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local function text(number)
  return string.format('%.0f', number)
end

-- Who runs this: the server process, its replication id, and whether that says that it was a
-- replica before: then its data may have been replaced since it last was a master. (The id also
-- changes without that, when a first replica attaches; the second one is cleared then.)
local function this_server()
  local told = redis.call('INFO', 'server', 'replication')
  local before = string.match(told, 'master_replid2:(%x+)') or ''
  return {
    run_id = string.match(told, 'run_id:(%x+)') or '',
    replid = string.match(told, 'master_replid:(%x+)') or '',
    promoted = string.find(before, '[^0]') ~= nil,
  }
end

-- Whether this server is the one whose run_id and replid were kept with the data.
local function is_same(server, run_id, replid)
  return server.run_id == run_id and (not server.promoted or server.replid == replid)
end

-- The marker of the store (hash): format, run_id of the server process that keeps the data, replid
-- (its replication id), since (first seen with them), lost_at (a loss was noticed; absent for a store declared new), until (no
-- claim is granted before), longest (the longest TTL of a job list); instants and TTL in ms.
--
-- Compares it with the server that runs this, and writes down a loss. Answers lost_at or nil,
-- horizon (what was due up to it may have been granted and forgotten) or nil, and till. `longest` is the longest TTL of the caller's list, or 0.
local function notice(key, longest)
  local kept = redis.call('HMGET', key, 'format', 'run_id', 'lost_at', 'until', 'longest',
    'replid')
  if kept[1] and tonumber(kept[1]) ~= FORMAT then
    error({ err = 'CORRUPT the store has format ' .. kept[1] .. ', written by another version' })
  end
  local server = this_server()
  local known = tonumber(kept[5] or 0)
  local past = { lost_at = tonumber(kept[3] or ''), till = tonumber(kept[4] or 0) }
  longest = math.max(longest, known)
  if not is_same(server, kept[2], kept[6]) then
    past.lost_at, past.till = now, now + longest
    redis.call('HSET', key, 'format', text(FORMAT), 'run_id', server.run_id,
      'replid', server.replid, 'since', text(now), 'lost_at', text(now), 'until', text(past.till), 'longest', text(longest))
  elseif longest > known then
    if past.lost_at and past.till > now then
      past.till = math.max(past.till, past.lost_at + longest)
    end
    redis.call('HSET', key, 'until', text(past.till), 'longest', text(longest))
  end
  past.horizon = past.lost_at and past.lost_at + SUCCESSOR_SKEW
  return past
end

-- How long a claim under a TTL waits yet, in ms, or 0.
local function recovering(past, ttl)
  if not past.lost_at then
    return 0
  end
  return math.max(past.lost_at + math.max(ttl, SUCCESSOR_SKEW), past.till, now) - now
end

-- The loss while it is fresh, or nil: an unknown job then counts as forgotten, not as new.
local function forgot(past)
  return past.lost_at and now - past.lost_at < AFTERMATH and past.lost_at or nil
end
