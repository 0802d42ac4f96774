-- What the short ways (settled.lua, granted.lua, ended.lua) share with the full rules.

-- What the keys hold, as a number.
local FORMAT = 1
-- The list of the finished: at most so many lines, each of so many characters.
local FINISHED_KEPT = 64
local FINISHED_LINE = 18
-- How many of the newest outcomes a summary has.
local RECENT_KEPT = 30

-- 16 characters that stand for a token: 64 of its 128 random bits, else of its digest.
local function mark(token)
  local random = string.match(token, '^:(%x+)$', -33)
  if random and #random == 32 then
    return string.sub(random, 17)
  end
  return string.sub(redis.sha1hex(token), 1, 16)
end

-- Whether the lock of this ledger is the one that the job uses: it never changed, or changed to this one.
local function is_at_home(moved)
  return (moved or '') == '' or string.match(moved, '^%d+ %d+ (.+)$') == KEYS[1]
end

local function is_number(value)
  return value and #value <= 17 and string.find(value, '^%d+$')
end

-- The same, for a number that may be negative.
local function is_instant(value)
  return value and #value <= 17 and string.find(value, '^%-?%d+$')
end

-- Whether an occurrence is decided that the watermark (last) has not passed, or one cannot be read. Those
-- that it has passed stay in the list until others are added.
local function has_beyond(instants, last)
  for at in string.gmatch(instants or '', '[^ ]+') do
    if not is_instant(at) or tonumber(at) > last then
      return true
    end
  end
  return false
end
