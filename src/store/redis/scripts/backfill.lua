-- Replaces a history that lacks records by the merged history of all nodes.
--
-- KEYS  1 job, 2 its history, 3 its failures
-- ARGV  1 the mark of what it lacks, 2 its newest entry or '', 3 another history (1/0), then per
--       record, oldest first: its entry, how many names and values, these
-- Reply 1 done | 0 something was written meanwhile, and nothing changed

local newest = on_key('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if on_key('HGET', KEYS[1], 'lacks') ~= ARGV[1] or (newest and newest[1] or '') ~= ARGV[2] then
  return 0
end
if ARGV[3] == '1' then
  redis.call('DEL', KEYS[2], KEYS[3])
  local at = 4
  while ARGV[at] do
    local last = at + 1 + tonumber(ARGV[at + 1]) * 2
    redis.call('XADD', KEYS[2], ARGV[at], unpack(ARGV, at + 2, last))
    for i = at + 2, last, 2 do
      if ARGV[i] == 'outcome' and FAILURES[ARGV[i + 1]] then
        redis.call('XADD', KEYS[3], ARGV[at], unpack(ARGV, at + 2, last))
      end
    end
    at = last + 1
  end
  keep_for(KEYS[2], job_span(KEYS[2]))
  keep_for(KEYS[3], job_span(KEYS[3]))
end
redis.call('HDEL', KEYS[1], 'lacks')
return 1
