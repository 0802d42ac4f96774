-- Marks a store as new and empty: its marker has no `lost_at`, so claims need not wait for leases that may have
-- been lost. The caller has checked that no key is there.
--
-- KEYS  1 store marker
-- Reply 1 marked | 0 it was marked already

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local server = this_server()
redis.call('HSET', KEYS[1], 'format', text(FORMAT), 'run_id', server.run_id,
  'replid', server.replid, 'since', text(now))
return 1
