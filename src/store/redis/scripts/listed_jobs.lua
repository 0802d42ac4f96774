-- Keeps the jobs of a list, or reads them.
--
-- KEYS  1 the jobs of the list (string)
-- ARGV  none: reads; else 1 how long they are kept in ms, 2 the jobs (missing: keeps those that are there)
-- Reply without ARGV the jobs, or an empty text; else 1 if they are there now, 0 if they are not

if #ARGV == 0 then
  return on_key('GET', KEYS[1]) or ''
end
if ARGV[2] then
  -- Whatever was there: the key belongs to this list alone.
  redis.call('SET', KEYS[1], ARGV[2])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
