-- Returns the hosts whose announcements have not expired, or those whose announcements have.
--
-- KEYS  1 hosts (hash: host -> "UNTIL SEEN JSON", both in ms)
-- ARGV  none: those that have not expired; else 1 how long expired ones count, in ms
-- Reply per host: seen at in ms, JSON

local replies = {}
local counts_for = tonumber(ARGV[1])
for _, value in ipairs(on_key('HVALS', KEYS[1])) do
  local valid_until, seen, json = string.match(value, '^(%d+) (%d+) (.*)$')
  -- The next announcement removes, and reports, what cannot be read.
  valid_until = tonumber(valid_until)
  if valid_until then
    local is_live = valid_until > now
    local is_wanted = is_live
    if counts_for then
      is_wanted = not is_live and valid_until + counts_for > now
    end
    if is_wanted then
      replies[#replies + 1] = { tonumber(seen), json }
    end
  end
end
return replies
