-- Declares an empty node new: it has nothing to remember.
--
-- KEYS  1 the node's marker
-- Reply 1

local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
redis.call('HSET', KEYS[1], 'server', server, 'lost_at', '', 'until', '0', 'longest', '0')
return 1
