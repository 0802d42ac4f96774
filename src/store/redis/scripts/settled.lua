-- The short way of a claim, before anything is loaded: most claims come after another host's, and
-- change nothing. Does what protocol/settled.rs does; what is odd is left to the full rules, which
-- report it. KEYS and ARGV are those of claim.lua.

if ARGV[5] == 'occurrence' then
  local token = ARGV[2]
  local job = redis.pcall('HMGET', KEYS[4], 'last', 'fingerprints', 'waiting', 'moved', 'status',
    'scheduled_at', 'token', 'host', 'run_id', 'attempt')
  local last = not job.err and job[1] and #job[1] <= 17 and string.find(job[1], '^%-?%d+$')
    and tonumber(job[1])
  if last and tonumber(ARGV[8]) <= last and (job[3] or '') == '' and (job[4] or '') == ''
    and string.find(job[2] or '', ' ' .. ARGV[12] .. '\n', 1, true) then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local state = redis.pcall('HMGET', KEYS[2], 'token', 'finished')
    local value = ARGV[1] == '1' and redis.pcall('GET', KEYS[1])
    local random = string.match(token, ':(%x+)$')
    local mark = random and #random == 32 and string.sub(random, 17)
      or string.sub(redis.sha1hex(token), 1, 16)
    -- LEAD of base.lua, which is not loaded yet.
    local lead = 1000
    if last <= now + lead and tonumber(ARGV[9]) <= now and not state.err and state[1] ~= token
      and value ~= token and not string.find(state[2] or '', mark, 1, true) then
      if job[5] ~= 'open' then
        return { 'decided' }
      elseif value and value == job[7] and job[6] == ARGV[8] and job[8] and job[9]
        and string.find(job[10] or '', '^%d+$') then
        local left = redis.call('PTTL', KEYS[1])
        if left >= 0 then
          return { 'running', job[8], job[9], tonumber(job[10]), math.max(left, 1) }
        end
      end
    end
  end
end
