-- The first part of every script: the store's clock.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- How far ahead of the clock a ledger may lie, in ms.
local LEAD = 1000
