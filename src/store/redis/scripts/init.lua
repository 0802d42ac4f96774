-- Initialises a new, empty store.
--
-- KEYS  1 store marker
-- Reply 1 done | 0 it is marked already

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local server = this_server()
redis.call('HSET', KEYS[1], 'format', text(FORMAT), 'run_id', server.run_id,
  'replid', server.replid, 'since', text(now))
return 1
