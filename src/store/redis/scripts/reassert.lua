-- Renews leases that a store may have forgotten, with all that it needs to take them back.
--
-- KEYS  1 store marker, then per lease: lock, its state, job, its history (twice the state for a
--       bare lock)
-- ARGV  per lease: exclusive (1/0), token, TTL in ms, fence, run id, of the job's run: kind or ''
--       for a bare lock, scheduled_at or '', attempt, started_at, terms
-- Reply per lease: R renewed | T taken by another | A absent

local past = notice(KEYS[1], 0)

-- What a renewal answers by what the store knows.
local function known(lock, token)
  local ours = lock.token == token
  if not lock.exclusive then
    return ours and 'R' or 'A'
  elseif lock.kind ~= 'absent' then
    return holds(lock, token) and 'R' or 'T'
  end
  return ours and lock.lease_end > now and 'R' or 'A'
end

-- Whether a later lease is known, or another program set the key without cronlatch.
local function may_return(lock, token, fence)
  local earlier = lock.fence < fence
  if fence == 0 or lock.fence > fence or ending(lock, token) then
    return false
  elseif lock.exclusive and (lock.kind == 'other'
    or (lock.kind == 'value' and not (lock.value == lock.token and earlier))) then
    return false
  end
  return lock.token == token or lock.token == '' or earlier
end

-- Writes the run into the ledger again. Returns the record of the one it replaces, and the ledger.
local function reopen(job_key, lock, token, run)
  local at = run.scheduled_at
  local job = load_job(job_key) or new_job(job_key, at or forgot(past) or now)
  local open, record = job.open, nil
  if open then
    if open.token == token or open.fence >= run.fence then
      return
    end
    record = record_of_open(open, 'unknown', 'the store lost data: how it ended is not known')
    remember_interrupted(lock, open.token)
  end
  take_waiting(job, function(entry)
    return entry.at == at
  end)
  job.last, job.open = math.max(job.last, at or job.last), run
  save_job(job)
  return record, job
end

local replies = {}
for i = 0, #ARGV / 10 - 1 do
  local keys = { unpack(KEYS, 4 * i + 2, 4 * i + 5) }
  local args = { unpack(ARGV, 10 * i + 1, 10 * i + 10) }
  local token, ttl, fence = args[2], tonumber(args[3]), tonumber(args[4])
  local lock = load_lock(keys[1], keys[2], args[1] == '1')
  local reply, record, job = known(lock, token), nil, nil
  if reply ~= 'R' and recovering(past, ttl) > 0 and may_return(lock, token, fence) then
    reply, lock.fence, lock.run_id = 'R', fence, args[5]
    if args[6] ~= '' then
      record, job = reopen(keys[3], lock, token, {
        run_id = args[5], token = token, attempt = tonumber(args[8]), kind = args[6],
        fence = fence, started_at = args[9], host = holder(token),
        scheduled_at = tonumber(args[7]), terms = load_terms(args[10]),
      })
    end
  end
  if reply == 'R' then
    take(lock, token, ttl)
    save_lock(lock, args[6] ~= '', ttl)
    if record then
      add_record(job, { runs = keys[4] }, nil, record)
    end
    set_key(lock)
  end
  replies[i + 1] = reply
end
return table.concat(replies)
