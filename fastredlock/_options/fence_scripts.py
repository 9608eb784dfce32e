"""The scripts that set a key under a number, with `fencing=True`, and their SHA1.

They stand in the place of the scripts of the same names; src_cython/round/fencing.pyx
has the rules. The last two arguments of each are a number and for how long (ms) it is
kept. A number is written before the key: an error reply has set no key.
"""

from __future__ import annotations

from . import scripts

# The number of these keys here: above the last of each, and `proposed` at the least.
# Where one is no number, or beyond what Lua can count, nothing is changed: that key has
# another use.
_NUMBER = b"""\
local function number(keys, proposed, life)
  local fence = tonumber(proposed)
  for _, key in ipairs(keys) do
    local last = redis.call("get", "fastredlock:fence:" .. key)
    if last then
      local counted = tonumber(last)
      if not counted or counted >= 9007199254740991 then
        return nil, redis.error_reply("ERR fastredlock:fence: is no number to count on")
      end
      if counted >= fence then fence = counted + 1 end
    end
  end
  local text = string.format("%.0f", fence)
  for _, key in ipairs(keys) do
    redis.call("set", "fastredlock:fence:" .. key, text, "px", life)
  end
  return fence
end
"""

_SET_ALL = b"""\
local fence, refused = number(KEYS, ARGV[3], ARGV[4])
if not fence then return refused end
for _, key in ipairs(KEYS) do
  if ARGV[2] == "0" then
    redis.call("set", key, ARGV[1])
  else
    redis.call("set", key, ARGV[1], "px", ARGV[2])
  end
end
return fence"""

# ARGV: token; ttl (ms), "0" of no expiry; the number, its life. Returns the number that
# the keys were set under, or 0: one of them exists. Of one key, too; there 1 stands for
# the number that was proposed: the usual case, in less time.
ACQUIRE_ALL = (
    b"""\
if not KEYS[2] and ARGV[2] ~= "0" and redis.call("exists", KEYS[1]) == 0 then
  local name, fence = "fastredlock:fence:" .. KEYS[1], tonumber(ARGV[3])
  if (tonumber(redis.call("get", name) or 0) or fence) < fence then
    redis.call("set", name, ARGV[3], "px", ARGV[4])
    redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2])
    return 1
  end
end
for _, key in ipairs(KEYS) do
  if redis.call("exists", key) == 1 then return 0 end
end
"""
    + _NUMBER
    + _SET_ALL
)

# As scripts.ACQUIRE_AGAIN.
ACQUIRE_AGAIN = (
    b"""\
for _, key in ipairs(KEYS) do
  local held = redis.pcall("get", key)
  if held and held ~= ARGV[1] then return 0 end
end
"""
    + _NUMBER
    + _SET_ALL
)

# As scripts.TAKE_TURN, with the number behind its arguments. Returns {what that one
# returns, the number or 0}. Refused because another waits longer, it leaves a gap.
TAKE_TURN = (
    _NUMBER
    + b"""\
local function take()
"""
    + scripts.TAKE_TURN
    + b"""
end
local fence, refused = 0, nil
if redis.call("exists", KEYS[1]) == 0 then
  fence, refused = number(KEYS, ARGV[6], ARGV[7])
  if not fence then return refused end
end
local said = take()
if said == 0 or said == 2 then fence = 0 end
return {said, fence}"""
)

# The second write, where the token stands: 1, the number is this one or a larger one;
# 0: it does not stand.
WRITE_FENCE = b"""\
for _, key in ipairs(KEYS) do
  if redis.call("get", key) ~= ARGV[1] then return 0 end
end
for _, key in ipairs(KEYS) do
  local name = "fastredlock:fence:" .. key
  local last = tonumber(redis.call("get", name) or 0)
  if last < tonumber(ARGV[2]) then redis.call("set", name, ARGV[2], "px", ARGV[3]) end
end
return 1"""

ACQUIRE_ALL_SHA1 = b"766418e8a7089ecfdadaa49868b292cf9fbdd2af"
ACQUIRE_AGAIN_SHA1 = b"08df3ba5c7e8af9894534e9b228080b6f79b8b03"
TAKE_TURN_SHA1 = b"347faab999dc5518025f46a5cff08beadae95253"
WRITE_FENCE_SHA1 = b"c4f45a0265c463039ed68b37a56508a85907d067"

# By the names of the scripts whose place they take.
FENCED = {
    "acquire_all": (ACQUIRE_ALL, ACQUIRE_ALL_SHA1),
    "acquire_again": (ACQUIRE_AGAIN, ACQUIRE_AGAIN_SHA1),
    "take_turn": (TAKE_TURN, TAKE_TURN_SHA1),
    "write_fence": (WRITE_FENCE, WRITE_FENCE_SHA1),
}
