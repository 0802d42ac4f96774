-- What the scripts of one node among several share: whether the node remembers.
--
-- Its marker (hash): server (run id of the process), replid (its replication id), lost_at (ms, ''
-- when nothing ever was lost), until (ms: before it no lock of this node counts as free), longest
-- (the longest TTL, ms).
-- Each lock and each job carries the lost_at under which it was last written (`epoch`): one that
-- was not written since the loss says nothing about what came before it.

local function recollect(key, longest, ttl)
  local kept = redis.call('HMGET', key, 'server', 'lost_at', 'until', 'longest', 'replid')
  local server = this_server()
  local same = is_same(server, kept[1], kept[5])
  local lost_at, lasts, known = kept[2] or '', tonumber(kept[3] or 0), tonumber(kept[4] or 0)
  longest = math.max(longest, known)
  if not same then
    lost_at, lasts = text(now), now + longest
  elseif longest > known and lasts > now then
    lasts = tonumber(lost_at) + longest
  end
  if not same or longest > known then
    redis.call('HSET', key, 'server', server.run_id, 'replid', server.replid, 'lost_at', lost_at,
      'until', text(lasts), 'longest', text(longest))
  end
  local left = 0
  if lost_at ~= '' then
    left = math.max(0, lasts - now, tonumber(lost_at) + ttl - now)
  end
  return { server = server.run_id, lost_at = lost_at, left = left, longest = longest }
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
