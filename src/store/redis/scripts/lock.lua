-- A lock and its state.
--
-- State (hash): fence, token ('' if none), lease_end (ms), run_id, finished (lines of one
-- length: R(eleased), L(ost) or I(nterrupted), then 16 characters that stand for the token).

local OTHER_TYPE = '(a key of another type)'

-- The host of a token of ours, or what a foreign value begins with (100 bytes, whole characters).
local function holder(value)
  local host = string.match(value, '^([%w._-]+):%d+:[^:]+:%x+$')
  if host and #host <= 200 then
    return host
  end
  local cut = math.min(#value, 100)
  while cut > 0 and cut < #value and math.floor(string.byte(value, cut + 1) / 64) == 2 do
    cut = cut - 1
  end
  return string.sub(value, 1, cut)
end

-- kind: 'absent', 'value' (then value), 'other' (a key of another type: held all the same).
local function load_lock(key, state, exclusive)
  local kept = on_key('HMGET', state, 'fence', 'token', 'lease_end', 'run_id', 'finished')
  local lock = {
    key = key, state = state, exclusive = exclusive, kind = 'absent',
    fence = count_in(state, 'fence', kept[1], 0), token = kept[2] or '',
    lease_end = count_in(state, 'lease_end', kept[3], 0),
    run_id = kept[4] or '', finished = kept[5] or '',
  }
  if exclusive then
    local value = redis.pcall('GET', key)
    if type(value) == 'table' then
      if not is_of_other_kind(value) then
        error(value)
      end
      lock.kind = 'other'
    elseif value then
      lock.kind, lock.value = 'value', value
    end
  end
  return lock
end

-- Writes the state. `has_job` and `ttl`: see state_span.
local function save_lock(lock, has_job, ttl)
  local state, left = lock.state, nil
  if lock.token ~= '' then
    redis.call('HSET', state, 'token', lock.token, 'lease_end', text(lock.lease_end),
      'run_id', lock.run_id)
  elseif has_job then
    redis.call('HDEL', state, 'token', 'lease_end', 'run_id')
  else
    -- Written anew: a hash that once held a token keeps the larger form that this needs.
    left = redis.call('PTTL', state)
    redis.call('DEL', state)
  end
  redis.call('HSET', state, 'fence', text(lock.fence))
  if lock.remembered or left and lock.finished ~= '' then
    redis.call('HSET', state, 'finished', lock.finished)
  end
  keep_for(state, math.max(left or 0, state_span(state, has_job, ttl)))
end

-- Milliseconds the key will last, or -1 without TTL.
local function key_remaining(lock)
  return redis.call('PTTL', lock.key)
end

local function holds(lock, token)
  return lock.kind == 'value' and lock.value == token
end

-- Where the token's line in the list of the finished begins, or nil.
local function finished_at(lock, token)
  local at = string.find(lock.finished, mark(token), 1, true)
  return at and at - 1
end

-- How a token ended: 'R', 'L', 'I' or nil.
local function ending(lock, token)
  local at = finished_at(lock, token)
  return at and string.sub(lock.finished, at, at)
end

-- Remembers how a token ended and forgets the oldest beyond FINISHED_KEPT.
local function remember(lock, token, how)
  local finished, at = lock.finished, finished_at(lock, token)
  if at then
    finished = string.sub(finished, 1, at - 1) .. string.sub(finished, at + FINISHED_LINE)
  end
  finished = finished .. how .. mark(token) .. '\n'
  local surplus = #finished - FINISHED_KEPT * FINISHED_LINE
  lock.finished = surplus > 0 and string.sub(finished, surplus + 1) or finished
  lock.remembered = true
end

-- Remembers that a run was interrupted, unless its token is known to have ended.
local function remember_interrupted(lock, token)
  if not ending(lock, token) then
    remember(lock, token, 'I')
  end
end

-- How the lock stands to a token: 'ours', 'free', or 'other' with holder and milliseconds (-1
-- without TTL). A lock that vanished before its lease end is its holder's until then.
local function standing(lock, token)
  if holds(lock, token) then
    return 'ours'
  elseif lock.kind == 'value' then
    return 'other', holder(lock.value), key_remaining(lock)
  elseif lock.kind == 'other' then
    return 'other', OTHER_TYPE, key_remaining(lock)
  elseif lock.token == token then
    return lock.exclusive and 'free' or 'ours'
  elseif lock.exclusive and lock.token ~= '' and lock.lease_end > now then
    return 'other', holder(lock.token), lock.lease_end - now
  end
  return 'free'
end

-- How long the lease of a token lasts, in milliseconds; 0 when it is over.
local function lease_remaining(lock, token)
  if holds(lock, token) then
    local left = key_remaining(lock)
    if left < 0 then
      left = lock.lease_end - now
    end
    return math.max(left, 1)
  elseif lock.token == token then
    return math.max(lock.lease_end - now, 0)
  end
  return 0
end

-- When the lease of a token ended; nil while it lasts, and if it is unknown because another lease
-- followed.
local function lease_ended_at(lock, token)
  if lock.token == token and lock.lease_end > 0 and lock.lease_end <= now then
    return lock.lease_end
  end
end

local function next_fence(lock)
  return math.max(lock.fence + 1, micros)
end

-- Takes the lock in the state; the key itself is set with set_key, after all else is written.
local function take(lock, token, ttl)
  lock.token, lock.lease_end, lock.ttl = token, now + ttl, ttl
end

local function set_key(lock)
  if lock.exclusive and lock.ttl then
    redis.call('SET', lock.key, lock.token, 'PX', text(lock.ttl))
  end
end

local function forget_holder(lock)
  lock.token, lock.run_id, lock.lease_end = '', '', 0
end
