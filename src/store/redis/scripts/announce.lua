-- Says that a host lives, or takes that back, and forgets the hosts whose word is over.
--
-- KEYS  1 hosts (hash: host -> "UNTIL SEEN JSON", both in ms), 2 store marker
-- ARGV  1 host, 2 how long the word is good in ms (0: no longer), 3 what it says of itself as JSON
-- Reply 1

notice(KEYS[2], 0)
local valid_for = tonumber(ARGV[2])
local hosts = redis.call('HGETALL', KEYS[1])
for i = 1, #hosts, 2 do
  if tonumber(string.match(hosts[i + 1], '^%d+')) <= now then
    redis.call('HDEL', KEYS[1], hosts[i])
  end
end
if valid_for == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 1
end
redis.call('HSET', KEYS[1], ARGV[1], text(now + valid_for) .. ' ' .. text(now) .. ' ' .. ARGV[3])
if redis.call('PTTL', KEYS[1]) < valid_for then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
