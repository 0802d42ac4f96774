-- The hosts that announced themselves and whose word still holds.
--
-- KEYS  1 hosts (hash: host -> "UNTIL SEEN JSON", both in ms)
-- Reply per host: seen at in ms, JSON

local replies = {}
for _, value in ipairs(redis.call('HVALS', KEYS[1])) do
  local valid_until, seen, json = string.match(value, '^(%d+) (%d+) (.*)$')
  if tonumber(valid_until) > now then
    replies[#replies + 1] = { tonumber(seen), json }
  end
end
return replies
