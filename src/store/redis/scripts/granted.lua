-- The short way of a claim that wins, before the rest of the rules is loaded: the next occurrence of
-- a job that is idle, with a free lock and nothing unusual in any key. It does what the full rules of
-- claim.lua would do, in a fraction of their time. A new rule about when a claim is granted must
-- also hold here: whatever is not known to be usual goes on to the full rules, and up to there nothing is
-- written. It alone grants ahead of the instant (lead), under the conditions of protocol/usual.rs. Two are
-- its own: no replicas are missing (unacknowledged), and every key and field is as it was written.

-- The fence of the lock, if it is free by state and key and this token has not ended.
local function free_fence(token)
  local state = redis.pcall('HMGET', KEYS[2], 'fence', 'token', 'lease_end', 'finished')
  local fence = not state.err and (state[1] or '0')
  return fence and is_number(fence) and (state[2] or '') == '' and not state[3]
    and not string.find(state[4] or '', mark(token), 1, true) and not redis.pcall('GET', KEYS[1])
    and tonumber(fence)
end

-- What the full rules find by `notice` and `recovering` in base.lua, if nothing is lost and one TTL at most is
-- listed: this server wrote the marker, nothing waits because of a loss before, and no such loss concerns
-- the instant `at`. Returns nil if it is not so; else the `until` of the marker, and its list of TTLs if that
-- changes.
local function usual_marker(ttl, at)
  local kept = redis.pcall('HMGET', KEYS[3], 'format', 'run_id', 'lost_at', 'until', 'longest', 'replid')
  if kept.err or tonumber(kept[1] or '') ~= FORMAT or not kept[2] or not kept[6] then
    return nil
  end
  local told = redis.call('INFO', 'server', 'replication')
  -- It is the same process, and was no replica before, or has the replication id that was kept.
  if not (string.find(told, '\nrun_id:' .. kept[2] .. '\r', 1, true)
    and (string.find(told, '\nmaster_replid:' .. kept[6] .. '\r', 1, true)
      or string.find(told, '\nmaster_replid2:0000000000000000000000000000000000000000\r', 1, true))) then
    return nil
  end
  local lost_at, till = tonumber(kept[3] or ''), tonumber(kept[4] or '0')
  if not till or lost_at and (lost_at + math.max(ttl, SUCCESSOR_SKEW) > now or till > now
    or at and at <= lost_at + FORGOTTEN_AHEAD) then
    return nil
  end
  local longest, listed = tonumber(ARGV[6]), kept[5] or ''
  local known, ends = string.match(listed, '^(%d+) (%d+)$')
  known, ends = tonumber(known or 0), tonumber(ends or 0)
  local outlasts = known >= longest and ends >= now + longest and ends > now
    and ends <= now + known + math.floor(known / 8)
  if outlasts or longest == 0 and listed == '' then
    return till
  elseif longest > 0 and (listed == '' or known > 0 and (known <= longest or ends <= now)) then
    return till, ARGV[6] .. ' ' .. text(now + longest + math.floor(longest / 8))
  end
end

-- Writes the list of TTLs if it changes, as `notice` does.
local function note_listed(till, listed)
  if listed then
    redis.call('HSET', KEYS[3], 'until', text(till), 'longest', listed)
  end
end

if last and ARGV[1] == '1' and ARGV[11] ~= '' and ARGV[20] == '' and #ARGV == 21 and job[2] ~= 'open'
  and tonumber(ARGV[8]) > last and last <= now and (job[3] or '') == '' and is_at_home(job[4]) then
  local token, ttl, run_id, at = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[8])
  local not_before = tonumber(ARGV[9])
  local seen, well_seen = nil, 0
  for first, fingerprint in string.gmatch(job[5] or '', '(%d+) ([^\n]*)\n') do
    if tonumber(first) <= now then
      well_seen = well_seen + #first + #fingerprint + 2
      seen = fingerprint == ARGV[12] and tonumber(first) or seen
    end
  end
  local host = string.match(token, '^([%w._-]+):%d+:[^:]+:%x+$')
  local rest = redis.pcall('HMGET', KEYS[4], 'beyond', 'unacknowledged', 'pauses')
  if seen and well_seen == #job[5] and tonumber(ARGV[11]) <= math.max(last, seen)
    and not rest.err and not has_beyond(rest[1], last) and (rest[2] or '') == '' and (rest[3] or '') == ''
    and not_before <= now + tonumber(ARGV[21]) and now <= tonumber(ARGV[10]) and host and #host <= 200 then
    local fence = free_fence(token)
    local history = fence and redis.pcall('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 0)
    local till, listed
    if fence and not (history and history.err) then
      till, listed = usual_marker(ttl, at)
    end
    if till then
      note_listed(till, listed)
      fence = math.max(fence + 1, micros)
      local fence_text, span = text(fence), job_span(KEYS[4])
      redis.call('HSET', KEYS[4], 'last', ARGV[8], 'status', 'open', 'run_id', run_id,
        'token', token, 'attempt', '1', 'kind', ARGV[7], 'fence', fence_text,
        'started_at', text(math.max(now, not_before)), 'host', host, 'scheduled_at', ARGV[8],
        'terms', ARGV[10] .. ' ' .. ARGV[16] .. ' ' .. ARGV[17] .. ' ' .. ARGV[18] .. ' 0 '
          .. (ARGV[13] == 'wait' and '1' or '0'))
      keep_for(KEYS[4], span)
      redis.call('HSET', KEYS[2], 'token', token, 'lease_end', text(now + ttl),
        'run_id', run_id, 'fence', fence_text)
      keep_for(KEYS[2], span)
      redis.call('SET', KEYS[1], token, 'PX', ARGV[3])
      return { 'granted', fence, 1, now, math.max(0, not_before * 1000 - micros) }
    end
  end
end

-- A lock without a job, in the same way.
if ARGV[5] == 'lock' and ARGV[1] == '1' then
  local token, ttl = ARGV[2], tonumber(ARGV[3])
  local fence, till, listed = free_fence(token)
  if fence then
    till, listed = usual_marker(math.max(ttl, tonumber(ARGV[7])))
  end
  if till then
    note_listed(till, listed)
    fence = math.max(fence + 1, micros)
    redis.call('HSET', KEYS[2], 'token', token, 'lease_end', text(now + ttl), 'run_id', ARGV[4],
      'fence', text(fence))
    keep_for(KEYS[2], state_span(KEYS[2], false, ttl))
    redis.call('SET', KEYS[1], token, 'PX', ARGV[3])
    return { 'granted', fence, 1, now, 0 }
  end
end
