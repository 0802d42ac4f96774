-- Marks a node as new and empty, as init.lua does for a store: it has nothing to remember.
--
-- KEYS  1 the node's marker
-- Reply 1

local server = this_server()
redis.call('HSET', KEYS[1], 'format', text(FORMAT), 'server', server.run_id,
  'replid', server.replid, 'lost_at', '', 'until', '0', 'longest', '')
return 1
