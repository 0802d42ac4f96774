-- Writes the entries of a host for jobs.
--
-- KEYS  per job: its listing (hash: host -> entry)
-- ARGV  1 host, 2 how long a listing, and each host's entry, lasts that is not written again, in ms,
--       then per job: its entry
-- Reply how many listings could not be written; then, for each key that was of another type and was
--       replaced, its number among the keys, from 1

-- Entries that their hosts have not refreshed for this long are deleted.
local function forget_silent(key)
  local entries = redis.call('HGETALL', key)
  for i = 1, #entries, 2 do
    local at = string.match(entries[i + 1], '^%a %S+ %d %S+ %d (%d+) ')
    if at and tonumber(at) < now - tonumber(ARGV[2]) then
      redis.call('HDEL', key, entries[i])
    end
  end
end

local failed, reply = 0, { 0 }
for i, key in ipairs(KEYS) do
  if remove_of_other_kind(key) then
    reply[#reply + 1] = i
  end
  -- What fails concerns one job alone.
  local written = redis.pcall('HSET', key, ARGV[1], ARGV[i + 2])
  if type(written) == 'table' then
    failed = failed + 1
  else
    redis.call('PEXPIRE', key, ARGV[2])
    forget_silent(key)
  end
end
reply[1] = failed
return reply
