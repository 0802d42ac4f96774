-- Announces a host, or removes its announcement, and deletes the announcements that expired long ago.
--
-- KEYS  1 hosts (hash: host -> "UNTIL SEEN JSON", both in ms), 2 store marker
-- ARGV  1 host, 2 how long the announcement lasts in ms (0: withdraws the one that the same
--       daemon made), 3 its description of itself as JSON, 4 longest TTL of its job list in ms, 5 how
--       long expired announcements are kept in ms
-- Reply the entries that could not be read and were removed: of each its field and its value; with
--       an empty field, all of them: the key was of another type than cronlatch writes

local function is_of_same_daemon(json, other)
  local one, two = cjson.decode(json), cjson.decode(other)
  return one.pid == two.pid and one.started_at == two.started_at
end

notice(KEYS[2], tonumber(ARGV[4]))
local valid_for = tonumber(ARGV[2])
local removed = {}
if remove_of_other_kind(KEYS[1]) then
  removed[1] = { '', '' }
end
local hosts = redis.call('HGETALL', KEYS[1])
for i = 1, #hosts, 2 do
  local valid_until, seen, json = string.match(hosts[i + 1], '^(%d+) (%d+) (.*)$')
  local readable, info = pcall(cjson.decode, json)
  if not readable or type(info) ~= 'table' or info.host ~= hosts[i] then
    removed[#removed + 1] = { hosts[i], string.sub(hosts[i + 1], 1, 100) }
    redis.call('HDEL', KEYS[1], hosts[i])
  elseif tonumber(valid_until) + tonumber(ARGV[5]) <= now then
    redis.call('HDEL', KEYS[1], hosts[i])
  elseif is_far_ahead(tonumber(seen)) then
    -- Announced while the clock was wrong: it lasts as long as an announcement made now.
    local lasts = now + tonumber(valid_until) - tonumber(seen)
    redis.call('HSET', KEYS[1], hosts[i], text(lasts) .. ' ' .. text(now) .. ' ' .. json)
  end
end
if valid_for == 0 then
  local kept = redis.call('HGET', KEYS[1], ARGV[1])
  -- Another daemon under this host's name may have replaced the announcement, and is still there.
  if kept and is_of_same_daemon(string.match(kept, '^%d+ %d+ (.*)$'), ARGV[3]) then
    redis.call('HDEL', KEYS[1], ARGV[1])
  end
  return removed
end
redis.call('HSET', KEYS[1], ARGV[1], text(now + valid_for) .. ' ' .. text(now) .. ' ' .. ARGV[3])
local lasts = valid_for + tonumber(ARGV[5])
if redis.call('PTTL', KEYS[1]) < lasts then
  redis.call('PEXPIRE', KEYS[1], text(lasts))
end
return removed
