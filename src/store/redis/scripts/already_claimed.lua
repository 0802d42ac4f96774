-- Whether another host has claimed an occurrence: what claim.lua would reply to a claim of which no copy was
-- sent, in the two cases in which most claims of a fleet are lost. It writes nothing. Whatever differs in any
-- way from these two cases is left to the claim.
--
-- It applies the conditions of settled.lua to the newest occurrence of the ledger. It does not look for the
-- claim's own token, which no key can hold yet, and so does not read the state of the lock: what is damaged
-- there is reported by the next claim that may take the lock, and by the end of the run. A new condition of
-- settled.lua must hold here too. A server that would reject the claim rejects the question as well, for
-- example after it has become a replica.
--
-- KEYS  1 lock, 2 job
-- ARGV  1 scheduled_at, 2 fingerprint as a line of the ledger has it (space before, line feed after),
--       3 from when on the occurrence may be granted
-- Reply a text: decided | ATTEMPT, MS, RUN_ID and HOST as four lines (of the run that is under way; MS: what is
--       left of its lease; below zero if the lock has no TTL or is absent: then the claim must be sent), or
--       nothing if the claim must be sent

local job = redis.pcall('HMGET', KEYS[2], 'last', 'status', 'waiting', 'moved', 'fingerprints', 'scheduled_at',
  'token', 'host', 'run_id', 'attempt')
if job[1] == ARGV[1] and (job[3] or '') == '' and string.find(job[5] or '', ARGV[2], 1, true)
  and ((job[4] or '') == '' or string.match(job[4], '^%d+ %d+ (.+)$') == KEYS[1]) then
  local time = redis.call('TIME')
  if time[1] * 1000 + time[2] / 1000 >= ARGV[3] + 0 then
    if job[2] ~= 'open' then
      return 'decided'
    end
    if job[6] == ARGV[1] and job[7] == redis.pcall('GET', KEYS[1]) and job[8] and job[9] and job[10] then
      return job[10] .. '\n' .. redis.call('PTTL', KEYS[1]) .. '\n' .. job[9] .. '\n' .. job[8]
    end
  end
end
