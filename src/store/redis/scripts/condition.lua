-- Returns whether the store has lost data, and how long claims wait for that reason.
--
-- KEYS  1 store marker
-- Reply lost_at or '', how much longer claims wait in ms

local kept = of_marker(KEYS[1], 'run_id', 'lost_at', 'until', 'longest', 'replid', 'format')
check_format(kept[6])
if not kept[1] then
  return { '', 0 }
end
if not is_same(this_server(), kept[1], kept[5]) then
  -- The next claim will write it down.
  return { now, longest_of(listed_ttls(kept[4])) }
end
local lost_at = tonumber(kept[2] or '')
return { lost_at or '', lost_at and math.max(tonumber(kept[3] or 0) - now, 0) or 0 }
