-- The first part of every script: the store's clock.

local time = redis.call('TIME')
local seconds, within = time[1] + 0, time[2] + 0
local now, micros = seconds * 1000 + (within - within % 1000) / 1000, seconds * 1000000 + within
-- How far ahead of the clock a ledger may lie, in ms. For these three see clock.rs.
local LEAD = 1000
local SUCCESSOR_SKEW = 1000
local FORGOTTEN_AHEAD = SUCCESSOR_SKEW + LEAD
