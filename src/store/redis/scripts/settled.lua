-- The short way of a claim, before anything is loaded: most claims come after another host's, and
-- change nothing. Does what protocol/settled.rs does; what is odd is left to the full rules, which
-- report it. KEYS and ARGV are those of claim.lua. It reads as little as possible, and replies to a
-- decided occurrence with a text, because converting a table takes as long as reading a key.
-- granted.lua goes on with what it has read. already_claimed.lua answers the same before a claim is sent.

local job, last
if ARGV[5] == 'occurrence' then
  job = redis.pcall('HMGET', KEYS[4], 'last', 'status', 'waiting', 'moved', 'fingerprints',
    'scheduled_at', 'token', 'host', 'run_id', 'attempt')
  last = not job.err and is_instant(job[1]) and tonumber(job[1])
  if last and tonumber(ARGV[8]) <= last and (job[3] or '') == '' and is_at_home(job[4])
    and string.find(job[5] or '', ' ' .. ARGV[12] .. '\n', 1, true)
    and last <= now + LEAD and tonumber(ARGV[9]) <= now + tonumber(ARGV[21]) then
    local token = ARGV[2]
    local state = redis.pcall('HMGET', KEYS[2], 'token', 'finished')
    local value = ARGV[1] == '1' and redis.pcall('GET', KEYS[1])
    if not state.err and state[1] ~= token and value ~= token
      and not string.find(state[2] or '', mark(token), 1, true) then
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
