-- Returns the hosts whose announcements have not expired.
--
-- KEYS  1 hosts (hash: host -> "UNTIL SEEN JSON", both in ms)
-- Reply per host: seen at in ms, JSON

local replies = {}
for _, value in ipairs(on_key('HVALS', KEYS[1])) do
  local valid_until, seen, json = string.match(value, '^(%d+) (%d+) (.*)$')
  -- The next announcement removes, and reports, what cannot be read.
  if valid_until and tonumber(valid_until) > now then
    replies[#replies + 1] = { tonumber(seen), json }
  end
end
return replies
