-- The short way of a claim that wins, before the rest of the rules is loaded: the next occurrence of
-- a job that is idle, with a free lock and nothing unusual in any key. It does what the full rules of
-- claim.lua would do, in about half of their time. A new rule about when a claim is granted must
-- also hold here: whatever is not known to be usual goes on to the full rules. It alone grants ahead of
-- the instant (lead), under the conditions of protocol/usual.rs. Two are its own: no replicas are
-- missing (unacknowledged), and every key and field is as it was written.

-- The fence of the lock, if it is free by state and key and this token has not ended.
local function free_fence(token)
  local state = redis.pcall('HMGET', KEYS[2], 'fence', 'token', 'lease_end', 'finished')
  local fence = not state.err and (state[1] or '0')
  return fence and is_number(fence) and (state[2] or '') == '' and not state[3]
    and not string.find(state[4] or '', mark(token), 1, true) and not redis.pcall('GET', KEYS[1])
    and tonumber(fence)
end

if ARGV[5] == 'occurrence' and ARGV[1] == '1' and ARGV[11] ~= '' and ARGV[20] == '' and #ARGV == 21 then
  local token, ttl, run_id, at = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[8])
  local not_before = tonumber(ARGV[9])
  local job = redis.pcall('HMGET', KEYS[4], 'last', 'status', 'waiting', 'moved', 'beyond',
    'unacknowledged', 'pauses', 'fingerprints')
  local last = not job.err and job[1] and #job[1] <= 17 and string.find(job[1], '^%-?%d+$')
    and tonumber(job[1])
  local seen, well_seen = nil, 0
  for first, fingerprint in string.gmatch(job[8] or '', '(%d+) ([^\n]*)\n') do
    if tonumber(first) <= now then
      well_seen = well_seen + #first + #fingerprint + 2
      seen = fingerprint == ARGV[12] and tonumber(first) or seen
    end
  end
  -- Of the instants decided beyond the watermark, those that it has passed stay until others are added.
  local is_decided_beyond = false
  for at in string.gmatch(job[5] or '', '[^ ]+') do
    is_decided_beyond = is_decided_beyond or not last or #at > 17
      or not string.find(at, '^%-?%d+$') or tonumber(at) > last
  end
  local host = string.match(token, '^([%w._-]+):%d+:[^:]+:%x+$')
  if last and job[2] ~= 'open' and (job[3] or '') == '' and is_at_home(job[4])
    and not is_decided_beyond and (job[6] or '') == '' and (job[7] or '') == ''
    and seen and well_seen == #job[8] and last < at and last <= now
    and tonumber(ARGV[11]) <= math.max(last, seen)
    and not_before <= now + tonumber(ARGV[21]) and now <= tonumber(ARGV[10]) and host and #host <= 200 then
    local fence = free_fence(token)
    if fence and not is_of_other_kind(redis.pcall('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 0)) then
      local past = notice(KEYS[3], tonumber(ARGV[6]))
      if recovering(past, ttl) == 0 and not (past.horizon and at <= past.horizon) then
        fence = math.max(fence + 1, micros)
        local fence_text = text(fence)
        redis.call('HSET', KEYS[4], 'last', text(at), 'status', 'open', 'run_id', run_id,
          'token', token, 'attempt', '1', 'kind', ARGV[7], 'fence', fence_text,
          'started_at', text(math.max(now, not_before)), 'host', host, 'scheduled_at', text(at),
          'terms', string.format('%.0f %.0f %.0f %.0f 0 %s', tonumber(ARGV[10]),
            tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18]),
            ARGV[13] == 'wait' and '1' or '0'))
        keep_for(KEYS[4], job_span(KEYS[4]))
        redis.call('HSET', KEYS[2], 'token', token, 'lease_end', text(now + ttl),
          'run_id', run_id, 'fence', fence_text)
        keep_for(KEYS[2], job_span(KEYS[2]))
        redis.call('SET', KEYS[1], token, 'PX', text(ttl))
        return { 'granted', fence, 1, now, math.max(0, not_before * 1000 - micros) }
      end
    end
  end
end

-- A lock without a job, in the same way.
if ARGV[5] == 'lock' and ARGV[1] == '1' then
  local token, ttl = ARGV[2], tonumber(ARGV[3])
  local fence = free_fence(token)
  if fence then
    local past = notice(KEYS[3], tonumber(ARGV[6]))
    if recovering(past, math.max(ttl, tonumber(ARGV[7]))) == 0 then
      fence = math.max(fence + 1, micros)
      redis.call('HSET', KEYS[2], 'token', token, 'lease_end', text(now + ttl), 'run_id', ARGV[4],
        'fence', text(fence))
      keep_for(KEYS[2], state_span(KEYS[2], false, ttl))
      redis.call('SET', KEYS[1], token, 'PX', text(ttl))
      return { 'granted', fence, 1, now, 0 }
    end
  end
end
