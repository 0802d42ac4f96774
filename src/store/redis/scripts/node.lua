-- What the scripts of one node among several share: whether the node remembers.
--
-- Its marker (hash): format, server (run id of the process), replid (its replication id), lost_at (ms, ''
-- when nothing ever was lost), until (ms: before it no lock of this node counts as free), longest
-- (the longest TTLs of the job lists, as base.lua keeps them).
-- Each lock and each job carries the lost_at under which it was last written (`epoch`): state
-- that was not written since the loss proves nothing about what came before it.

-- `listed` is the longest TTL of the caller's list, `elsewhere` the longest that other nodes told
-- it; a node that lost its data waits for the latter too, but does not keep it. A loss that was
-- noticed under a clock that was far ahead counts as another one, noticed now.
local function recollect(key, listed, elsewhere, ttl)
  local kept = of_marker(key, 'server', 'lost_at', 'until', 'longest', 'replid', 'format')
  check_format(kept[6])
  if kept[1] and not kept[6] then
    redis.call('HSET', key, 'format', text(FORMAT))
  end
  local server, before = this_server(), listed_ttls(kept[4])
  local lost_at, known = kept[2] or '', tonumber(kept[3] or 0)
  local lasts, asked = known, math.max(listed, elsewhere)
  local left, ttls = note_ttl(before, listed)
  local is_wrong = is_far_ahead(tonumber(lost_at))
  if is_wrong then
    known = now + math.max(0, known - tonumber(lost_at))
  end
  if is_wrong or not is_same(server, kept[1], kept[5]) then
    lost_at = text(now)
    lasts = math.max(known, now + math.max(asked, longest_of(before)))
    redis.call('HSET', key, 'format', text(FORMAT), 'server', server.run_id, 'replid', server.replid, 'lost_at', lost_at,
      'until', text(lasts), 'longest', ttls)
  else
    if lost_at ~= '' and known > now then
      lasts = math.max(known, tonumber(lost_at) + asked)
    end
    if lasts ~= known or ttls ~= (kept[4] or '') then
      redis.call('HSET', key, 'until', text(lasts), 'longest', ttls)
    end
  end
  local wait = 0
  if lost_at ~= '' then
    wait = math.max(0, lasts - now, tonumber(lost_at) + ttl - now)
  end
  return { server = server.run_id, lost_at = lost_at, left = wait, longest = longest_of(left) }
end

-- Whether a token stands in a list of those that ended (lines: a letter, then what no other token
-- shares).
local function has_ended(list, token)
  local part = string.match(token, ':(%x+)$')
  part = part and #part == 32 and part or token
  for _, how in ipairs({ 'R', 'L', 'I' }) do
    if string.find(list, '\n' .. how .. part .. '\n', 1, true) then
      return true
    end
  end
  return false
end
