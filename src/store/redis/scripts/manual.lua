-- Notes runs by hand, forgets such notes, or reads them all.
--
-- KEYS  1 the notes (hash: run id -> "NOTED JSON", noted at in ms)
-- ARGV  none: reads; else 1 how long the notes are kept in ms, then per run: id, JSON (empty:
--       forgets the run)
-- Reply without ARGV per note: run id, its age in ms, JSON

local replies = {}
if #ARGV == 0 then
  local notes = on_key('HGETALL', KEYS[1])
  for i = 1, #notes, 2 do
    local noted, json = string.match(notes[i + 1], '^(%d+) (.*)$')
    local age = noted and math.max(now - tonumber(noted), 0) or 0
    replies[#replies + 1] = { notes[i], age, json or '' }
  end
  return replies
end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    on_key('HDEL', KEYS[1], ARGV[i])
  else
    on_key('HSET', KEYS[1], ARGV[i], text(now) .. ' ' .. ARGV[i + 1])
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
  end
end
return replies
