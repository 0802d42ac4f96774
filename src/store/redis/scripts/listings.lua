-- The entries of all hosts about jobs.
--
-- KEYS  per job: its listing (hash: host -> entry)
-- Reply per job: host, entry, host, entry, ...; or one text: why it cannot be read

local replies = {}
for i, key in ipairs(KEYS) do
  local entries = redis.pcall('HGETALL', key)
  if entries.err then
    entries = { entries.err }
  end
  replies[i] = entries
end
return replies
