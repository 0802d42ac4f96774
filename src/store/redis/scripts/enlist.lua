-- Writes the entries of a host for jobs.
--
-- KEYS  per job: its listing (hash: host -> entry)
-- ARGV  1 host, 2 how long a listing, and each host's entry, lasts that is not written again, in ms,
--       then per job: its entry. A late copy must not replace what the host has written since
--       (src/store/contract/registry.rs)
-- Reply how many listings could not be written; then, for each key that was of another type and was
--       replaced, its number among the keys, from 1

-- When an entry was written; nil if it cannot be read.
local function written_at(entry)
  return entry and tonumber(string.match(entry, '^%a %S+ %d %S+ %d (%d+) ') or '')
end

-- Entries that their hosts have not refreshed for this long are deleted.
local function forget_silent(key)
  local entries = redis.call('HGETALL', key)
  for i = 1, #entries, 2 do
    local at = written_at(entries[i + 1])
    if at and at < now - tonumber(ARGV[2]) then
      redis.call('HDEL', key, entries[i])
    end
  end
end

local failed, reply = 0, { 0 }
for i, key in ipairs(KEYS) do
  if remove_of_other_kind(key) then
    reply[#reply + 1] = i
  end
  local kept = written_at(redis.call('HGET', key, ARGV[1]))
  if not (kept and is_late(written_at(ARGV[i + 2]), kept)) then
    -- What fails concerns one job alone.
    local written = redis.pcall('HSET', key, ARGV[1], ARGV[i + 2])
    if type(written) == 'table' then
      failed = failed + 1
    else
      redis.call('PEXPIRE', key, ARGV[2])
      forget_silent(key)
    end
  end
end
reply[1] = failed
return reply
