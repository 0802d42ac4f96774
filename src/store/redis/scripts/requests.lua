-- Requests to daemons: files one, takes one, keeps the reply to one, or lists them.
--
-- KEYS  1 the requests (hash: ID -> "FILED DEADLINE HOST JSON", ID:taken -> when, ID:reply -> JSON; all
--         instants in ms)
-- ARGV  1 what to do:
--       file   2 id, 3 host, 4 deadline, 5 JSON, 6 how long requests are kept in ms, 7 how many, 8 channel
--       take   2 id
--       reply  2 id, 3 JSON
--       list   2 host; empty: all hosts
-- Reply file: kept, late or full; take: 1 if the caller is the first and the deadline has not come, else
--       0; reply: 1; list, per request: id, host, age and time left in ms, taken (1 or 0), JSON, reply

local order, id = ARGV[1], ARGV[2]

local function parts(value)
  return string.match(value or '', '^(%d+) (%d+) ([%w._-]+) (.*)$')
end

if order == 'take' then
  local _, deadline = parts(on_key('HGET', KEYS[1], id))
  if not deadline or tonumber(deadline) <= now or on_key('HGET', KEYS[1], id .. ':taken') then
    return 0
  end
  on_key('HSET', KEYS[1], id .. ':taken', text(now))
  return 1
elseif order == 'reply' then
  if on_key('HGET', KEYS[1], id) then
    on_key('HSET', KEYS[1], id .. ':reply', ARGV[3])
  end
  return 1
end

local fields, all = {}, on_key('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  fields[all[i]] = all[i + 1]
end

if order == 'list' then
  local replies = {}
  for field, value in pairs(fields) do
    local filed, deadline, host, json = parts(value)
    if filed and not string.find(field, ':', 1, true) and (id == '' or host == id) then
      replies[#replies + 1] = {
        field, host, math.max(now - tonumber(filed), 0), math.max(tonumber(deadline) - now, 0),
        fields[field .. ':taken'] and 1 or 0, json, fields[field .. ':reply'] or '',
      }
    end
  end
  return replies
end

if fields[id] then
  return 'kept'
elseif tonumber(ARGV[4]) <= now then
  return 'late'
end
local kept, oldest = 0, now - tonumber(ARGV[6])
for field, value in pairs(fields) do
  if not string.find(field, ':', 1, true) then
    local filed = parts(value)
    if filed and tonumber(filed) > oldest then
      kept = kept + 1
    else
      on_key('HDEL', KEYS[1], field, field .. ':taken', field .. ':reply')
    end
  end
end
if kept >= tonumber(ARGV[7]) then
  return 'full'
end
on_key('HSET', KEYS[1], id, text(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
-- Without the right to publish, the daemon finds the request at its next look.
redis.pcall('PUBLISH', ARGV[8], id)
return 'kept'
