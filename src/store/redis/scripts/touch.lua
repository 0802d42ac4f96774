#!lua flags=allow-oom
-- Writes what is there already, so that this connection has something of its own to WAIT for. In a
-- Cluster a PUBLISH is not replicated, and since Redis 7.2 WAIT asks about writes alone.
--
-- Stands by itself, without base.lua: it is sent in full each time, as a pipeline cannot fall back
-- from its digest.
--
-- KEYS  1 store marker of a slot
-- Reply 1, or 0 when the marker is gone: then the slot has lost what was written before

local format = redis.call('HGET', KEYS[1], 'format')
if not format then
  return 0
end
redis.call('HSET', KEYS[1], 'format', format)
return 1
