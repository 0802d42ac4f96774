-- How long keys and records are kept, and how numbers are written. Stored numbers are formatted with %.0f, because Lua
-- turns large ones into 1.7e+15.

local STATE_TTL = 30 * 24 * 3600 * 1000
local HOST_TTL = 7 * 24 * 3600 * 1000
local BARE_STATE_TTL = 3600 * 1000
local KEEP_SLACK = 1800 * 1000

local function text(number)
  return string.format('%.0f', number)
end

-- How long a key of a job is kept that no host refreshes, in ms (keep.lua): thirty days; a week for
-- one of a single host, which has the host in its hash tag.
local function job_span(key)
  -- The plain search takes less time, and most keys have no such character.
  local of_host = string.find(key, '@', 1, true) and string.find(key, '^[^{]*{[%w._-]+@[%w._-]+}:')
  return of_host and HOST_TTL or STATE_TTL
end

-- How long the state of a lock is kept, in ms. That of a job (has_job) knows which verdicts were
-- delivered, and is kept like the job. One without a job is of use until the lease that it names is
-- over, and while a late copy of a finished claim may arrive: for an hour. Then it needs no fence
-- either, because fences follow the clock.
local function state_span(key, has_job, ttl)
  return has_job and job_span(key) or BARE_STATE_TTL + ttl
end

-- Keeps a key for this long, in ms, unless it will be kept for almost as long anyway.
local function keep_for(key, span)
  if redis.call('PTTL', key) < span - KEEP_SLACK then
    redis.call('PEXPIRE', key, text(span))
  end
end

-- The newest id of an entry of a stream that is older than `age` in ms.
local function older_than(age)
  return text(math.max(now - age - 1, 0))
end

-- Removes the entries of a stream up to that id: all of them, unless there are more than a few thousand, which
-- would hold up the server.
local function remove_old(stream, oldest)
  for _ = 1, 50 do
    local entries = redis.pcall('XREVRANGE', stream, oldest, '-', 'COUNT', 100)
    for _, entry in ipairs(entries) do
      redis.call('XDEL', stream, entry[1])
    end
    if #entries < 100 then
      return
    end
  end
end
