-- The short way of a claim, before anything is loaded: most claims come after another host's, and
-- change nothing. Does what protocol/settled.rs does; what is odd is left to the full rules, which
-- report it. KEYS and ARGV are those of claim.lua. It reads as little as possible, and replies to a
-- decided occurrence with a text, because converting a table takes as long as reading a key.

-- What stands for the token in the list of the finished; see mark() in lock.lua.
local own_mark

-- Whether the lock of this ledger is the one that the job uses: it never changed, or changed to this one.
local function is_at_home(moved)
  return (moved or '') == '' or string.match(moved, '^%d+ %d+ (.+)$') == KEYS[1]
end

if ARGV[5] == 'occurrence' then
  local token = ARGV[2]
  local random = string.match(token, '^:(%x+)$', -33)
  own_mark = random and #random == 32 and string.sub(random, 17)
    or string.sub(redis.sha1hex(token), 1, 16)
  local job = redis.pcall('HMGET', KEYS[4], 'last', 'status', 'waiting', 'moved', 'fingerprints',
    'scheduled_at', 'token', 'host', 'run_id', 'attempt')
  local last = not job.err and job[1] and #job[1] <= 17 and string.find(job[1], '^%-?%d+$')
    and tonumber(job[1])
  if last and tonumber(ARGV[8]) <= last and (job[3] or '') == '' and is_at_home(job[4])
    and string.find(job[5] or '', ' ' .. ARGV[12] .. '\n', 1, true)
    and last <= now + LEAD and tonumber(ARGV[9]) <= now + tonumber(ARGV[21]) then
    local state = redis.pcall('HMGET', KEYS[2], 'token', 'finished')
    local value = ARGV[1] == '1' and redis.pcall('GET', KEYS[1])
    if not state.err and state[1] ~= token and value ~= token
      and not string.find(state[2] or '', own_mark, 1, true) then
      if job[2] ~= 'open' then
        return 'decided'
      end
      if value and value == job[7] and job[6] == ARGV[8] and job[8] and job[9]
        and string.find(job[10] or '', '^%d+$') then
        local left = redis.call('PTTL', KEYS[1])
        if left >= 0 then
          return { 'running', job[8], job[9], tonumber(job[10]), math.max(left, 1) }
        end
      end
    end
  end
end
