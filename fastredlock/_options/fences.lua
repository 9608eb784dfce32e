-- The scripts that set a key under a number, with `fencing=True`.
--
-- They replace the scripts of the same names, but for `write_fence`;
-- src_cython/round/fencing.pyx has the rules. The last two arguments of each are a
-- number and for how long (ms) it is kept. An error reply has set no key.
--
-- A number is the score of one member, `f`, of a sorted set: clients of an earlier
-- release raise it by ZADD.

-- The number of these keys here: above the last of each, and `proposed` at the least.
-- Where one is no number, or beyond what Lua can count, nothing is changed: that key
-- has another use.
local function number()
  local function number(keys, proposed, life)
    local fence = tonumber(proposed)
    for _, key in ipairs(keys) do
      local last = redis.call("zscore", "fastredlock:fence:" .. key, "f")
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
      redis.call("zadd", "fastredlock:fence:" .. key, text, "f")
      redis.call("pexpire", "fastredlock:fence:" .. key, life)
    end
    return fence
  end
end

local function set_all()
  local fence, refused = number(KEYS, ARGV[3], ARGV[4])
  if not fence then return refused end
  for _, key in ipairs(KEYS) do
    if ARGV[2] == "0" then
      redis.call("set", key, ARGV[1])
    else
      redis.call("set", key, ARGV[1], "px", ARGV[2])
    end
  end
  return fence
end

-- ARGV: token; ttl (ms), "0" of no expiry; the number, its life. Returns the number
-- that the keys were set under, or 0: one of them exists. One key whose number is less
-- than the proposal is the usual case: three commands. Where it is not, or one of them
-- fails, the key is taken back, and all begins anew.
function fenced_acquire_all()
  local name = #KEYS == 1 and ARGV[2] ~= "0" and "fastredlock:fence:" .. KEYS[1]
  if not name then
    if redis.call("exists", unpack(KEYS)) > 0 then return 0 end
  else
    if not redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return 0 end
    local raised = redis.pcall("zadd", name, "gt", "ch", ARGV[3], "f")
    if raised == 1 and redis.pcall("pexpire", name, ARGV[4]) == 1 then
      return tonumber(ARGV[3])
    end
    redis.call("del", KEYS[1])
  end
  --@ number
  --@ set_all
end

-- As acquire_again.
function fenced_acquire_again()
  for _, key in ipairs(KEYS) do
    local held = redis.pcall("get", key)
    if held and held ~= ARGV[1] then return 0 end
  end
  --@ number
  --@ set_all
end

-- As take_turn, with the number behind its arguments. Returns {what that one returns,
-- the number or 0}. Refused because another waits longer, it leaves a gap.
function fenced_take_turn()
  --@ number
  local function take()
  --@ take_turn
  end
  local fence, refused = 0, nil
  if redis.call("exists", KEYS[1]) == 0 then
    fence, refused = number({KEYS[1]}, ARGV[#ARGV - 1], ARGV[#ARGV])
    if not fence then return refused end
  end
  local said = take()
  if said % 2 == 0 then fence = 0 end
  return {said, fence}
end

-- The second write, where the key has the token: 1, the number is this one or a larger
-- one; 0: it has not.
function write_fence()
  for _, key in ipairs(KEYS) do
    if redis.call("get", key) ~= ARGV[1] then return 0 end
  end
  for _, key in ipairs(KEYS) do
    local name = "fastredlock:fence:" .. key
    local last = tonumber(redis.call("zscore", name, "f") or 0)
    if last < tonumber(ARGV[2]) then
      redis.call("zadd", name, ARGV[2], "f")
      redis.call("pexpire", name, ARGV[3])
    end
  end
  return 1
end

-- As probe, and the commands of the numbers: nothing is changed by them.
function fenced_probe()
  local refused, name = {}, "fastredlock:probe"
  local function try(whose, command, ...)
    local said = redis.pcall(command, name, ...)
    if type(said) == "table" and said.err then
      table.insert(refused, whose .. command .. ": " .. said.err)
    end
  end
  try("", "GET")
  try("", "DEL")
  try("fencing: ", "ZSCORE", "f")
  try("fencing: ", "ZADD", "xx", 1, "f")
  try("fencing: ", "PEXPIRE", 1)
  return refused
end
