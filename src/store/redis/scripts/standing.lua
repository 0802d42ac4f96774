-- Whether a node counts, and which ledgers it has not received since it lost its data. Changes
-- nothing: the next request notes a loss that is first seen here.
--
-- KEYS  1 the node's marker, then per job: the lock's state, the job
-- ARGV  1 longest TTL known in ms
-- Reply 'new' (never used and not initialised) | 'known'; lost_at or ''; how long its locks do
--       not count as free yet in ms; the longest TTL it knows in ms; per job a letter: K known | N nothing there, and nothing lost
--       | F there, from before the loss | A absent, maybe lost; its clock in microseconds

local kept = of_marker(KEYS[1], 'server', 'lost_at', 'until', 'longest', 'replid', 'format')
check_format(kept[6])
local lost_at, left = kept[2] or '', 0
if not is_same(this_server(), kept[1], kept[5]) then
  lost_at, left = text(now), math.max(tonumber(ARGV[1]), longest_of(listed_ttls(kept[4])))
elseif lost_at ~= '' then
  left = math.max(0, tonumber(kept[3] or 0) - now, tonumber(lost_at) + tonumber(ARGV[1]) - now)
end

local letters = {}
for i = 1, (#KEYS - 1) / 2 do
  local lock = on_key('HGET', KEYS[2 * i], 'epoch')
  local job = on_key('HMGET', KEYS[2 * i + 1], 'ledger', 'epoch')
  local sound = lost_at == '' or job[2] == lost_at and (not lock or lock == lost_at)
  if job[1] then
    letters[i] = sound and 'K' or 'F'
  else
    letters[i] = lost_at == '' and 'N' or 'A'
  end
end
return { kept[1] and 'known' or 'new', lost_at, text(left),
  text(longest_of((note_ttl(listed_ttls(kept[4]), 0)))), table.concat(letters), text(micros) }
