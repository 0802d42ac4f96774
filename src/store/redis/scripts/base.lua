-- What most scripts need: checks of what keys hold, and the marker of the store.
--
-- Each rule is written once as Rust, in src/store/protocol. The scripts implement the same rules and are
-- compared with it call by call. A script reads everything first and then writes: outcome, history, lock.

local AFTERMATH = 3600 * 1000
local LEDGER_AHEAD = 3 * 3600 * 1000

-- Fails because of what one key holds. The caller learns which one, by its place in KEYS, so that
-- only the job it belongs to is affected.
local function damaged(key, what)
  for place, name in ipairs(KEYS) do
    if name == key then
      error({ err = 'DAMAGED ' .. place .. ' ' .. what })
    end
  end
  error({ err = 'CORRUPT ' .. key .. ': ' .. what })
end

local OTHER_KIND = 'is of another type than cronlatch writes (redis-cli TYPE shows which)'

local function is_of_other_kind(answer)
  return type(answer) == 'table' and answer.err and string.sub(answer.err, 1, 9) == 'WRONGTYPE'
end

-- Calls a command on a key that may have a type that cronlatch does not write.
local function on_key(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if is_of_other_kind(answer) then
    damaged(key, OTHER_KIND)
  elseif type(answer) == 'table' and answer.err then
    error(answer)
  end
  return answer
end

-- Deletes a key that should be a hash but has another type, if its contents can be written again.
-- Returns whether it did, so that the caller reports it.
local function remove_of_other_kind(key)
  local other = is_of_other_kind(redis.pcall('HGET', key, ''))
  if other then
    redis.call('DEL', key)
  end
  return other
end

-- Fields of the store's marker. Without it no script knows whether the data are complete, so a
-- marker of another type stops everything until a person deletes it.
local function of_marker(key, ...)
  local kept = redis.pcall('HMGET', key, ...)
  if is_of_other_kind(kept) then
    error({ err = 'CORRUPT ' .. key .. ' ' .. OTHER_KIND .. ' (DEL ' .. key
      .. ' repairs it; claims then wait for one ttl, as after a loss of data)' })
  elseif kept.err then
    error(kept)
  end
  return kept
end

-- Fails if a marker was written by a version that keeps other things in the keys. An earlier version
-- wrote no format into the marker of a node.
local function check_format(format)
  if format and tonumber(format) ~= FORMAT then
    error({ err = 'CORRUPT the store has format ' .. format .. ', written by another version' })
  end
end

-- Returns the integer in a field of a key, or the default without such a field.
local function number_in(key, field, kept, default)
  if not kept then
    return default
  elseif not is_instant(kept) then
    damaged(key, field .. ' is not a number')
  end
  return tonumber(kept)
end

-- As above, for a number that is never negative.
local function count_in(key, field, kept, default)
  local count = number_in(key, field, kept, default)
  if count and count < 0 then
    damaged(key, field .. ' is below zero')
  end
  return count
end

-- The server process, its replication id, and whether that id shows that it was a
-- replica before: then its data may have been replaced since it last was a master. (The id also
-- changes without that, when a first replica attaches; the second one is cleared then.)
local function this_server()
  local told = redis.call('INFO', 'server', 'replication')
  -- A plain search takes a tenth of the time of a pattern that may begin anywhere in the text.
  local function id(name)
    local _, ends = string.find(told, name, 1, true)
    return ends and string.match(told, '^%x+', ends + 1) or ''
  end
  local before = id('master_replid2:')
  return {
    run_id = id('run_id:'),
    replid = id('master_replid:'),
    promoted = string.find(before, '[^0]') ~= nil,
  }
end

-- Whether this server is the one whose run_id and replid were kept with the data.
local function is_same(server, run_id, replid)
  return server.run_id == run_id and (not server.promoted or server.replid == replid)
end

-- Whether an instant was written while the clock was wrong, and the clock is right now.
local function is_far_ahead(at)
  return at and at > now + LEDGER_AHEAD
end

-- Whether what was written at one instant is a late copy, because `kept` was written after it.
local function is_late(at, kept)
  return at and at < kept and not is_far_ahead(kept)
end

-- The TTLs that lists have or had until lately, the longest first, each with the instant when it
-- stops to matter: "TTL UNTIL,TTL UNTIL", in ms. (An earlier version kept the longest TTL alone.)
local function listed_ttls(kept)
  local listed = {}
  for ttl, till in string.gmatch(kept or '', '(%d+) ?(%d*)') do
    ttl = tonumber(ttl)
    local latest = now + ttl + math.floor(ttl / 8)
    listed[#listed + 1] = { ttl = ttl, till = math.min(tonumber(till) or latest, latest) }
  end
  return listed
end

local function longest_of(listed)
  return listed[1] and listed[1].ttl or 0
end

-- Notes that a TTL is in use (0: none) and removes those that no longer matter. Returns the remaining
-- ones, and their text. See protocol/listed.rs.
local function note_ttl(listed, ttl)
  local left, lines, outlasted = {}, {}, ttl == 0
  for _, known in ipairs(listed) do
    if known.till > now then
      left[#left + 1] = known
      outlasted = outlasted or known.ttl >= ttl and known.till >= now + ttl
    end
  end
  if not outlasted then
    while left[1] and left[#left].ttl <= ttl do
      left[#left] = nil
    end
    left[#left + 1] = { ttl = ttl, till = now + ttl + math.floor(ttl / 8) }
  end
  for i, known in ipairs(left) do
    lines[i] = text(known.ttl) .. ' ' .. text(known.till)
  end
  return left, table.concat(lines, ',')
end

-- The marker of the store (hash): format, run_id of the server process that keeps the data, replid
-- (its replication id), since (first seen with them), lost_at (a loss was noticed; absent for a
-- store declared new), until (no claim is granted before), longest (the longest TTLs of the job
-- lists); instants and TTL in ms.
--
-- Compares it with the server that runs this, and writes down a loss. Answers lost_at or nil,
-- horizon (what was due up to it may have been granted and forgotten) or nil, and till. `longest`
-- is the longest TTL of the caller's list, or 0. At a loss all TTLs of the marker count: the data
-- may be from long ago. A loss that was noticed under a clock that was far ahead counts as noticed now.
local function notice(key, longest)
  local kept = of_marker(key, 'format', 'run_id', 'lost_at', 'until', 'longest',
    'replid')
  check_format(kept[1])
  local server, before = this_server(), listed_ttls(kept[5])
  local past = { lost_at = tonumber(kept[3] or ''), till = tonumber(kept[4] or 0) }
  local known, is_wrong = past.till, is_far_ahead(past.lost_at)
  if is_wrong then
    known = now + math.max(0, known - past.lost_at)
  end
  local _, listed = note_ttl(before, longest)
  if is_wrong or not is_same(server, kept[2], kept[6]) then
    past.lost_at = now
    past.till = math.max(known, now + math.max(longest, longest_of(before)))
    redis.call('HSET', key, 'format', text(FORMAT), 'run_id', server.run_id,
      'replid', server.replid, 'since', text(now), 'lost_at', text(now),
      'until', text(past.till), 'longest', listed)
  else
    if past.lost_at and known > now then
      past.till = math.max(known, past.lost_at + longest)
    end
    if past.till ~= known or listed ~= (kept[5] or '') then
      redis.call('HSET', key, 'until', text(past.till), 'longest', listed)
    end
  end
  past.horizon = past.lost_at and past.lost_at + FORGOTTEN_AHEAD
  return past
end

-- Returns how much longer a claim with this TTL waits, in ms, or 0.
local function recovering(past, ttl)
  if not past.lost_at then
    return 0
  end
  return math.max(past.lost_at + math.max(ttl, SUCCESSOR_SKEW), past.till, now) - now
end

-- Returns a recent loss, or nil. An unknown job then counts as lost, not as new.
local function forgot(past)
  return past.lost_at and now - past.lost_at < AFTERMATH and past.lost_at or nil
end
