-- The scripts of locks; scripts.py has the form of these files.

-- The script of the Redlock page, letter by letter: other clients load the same text, so
-- a server keeps one copy.
function release()
  if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end
end

-- Never re-creates a key: PEXPIRE on one that is gone does nothing, and a key with
-- another's token is left alone. Returns 1; 0: another's; 2: gone; a text: broken.
function extend()
  local held=redis.call("get",KEYS[1]) if held==ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) end
  --@ broken
  return broken(KEYS[1]) or held and 0 or 2
end

-- If the lock of ARGV[1] was broken by a person: "!", for how long (ms), and by whom. An
-- ACL may refuse it: then as if it was not.
local function broken()
  local function broken(key)
    local name = "fastredlock:broken:" .. key .. ":" .. redis.sha1hex(ARGV[1])
    local trace, left = redis.pcall("get", name), redis.pcall("pttl", name)
    if type(trace) ~= "string" or #trace > 200 or type(left) ~= "number" then return end
    local life, by = string.match(trace, "^(%d+) (.*)$")
    if life then return "!" .. life - left .. " " .. by end
  end
end

-- A lock is broken: the key is deleted if it has this token (a reader's goes out of it),
-- the next is notified, and the holder is left a trace beside it, of its own: a hash of
-- the token is in the name. It says for how long it is kept, and by whom the lock was
-- broken, and lives as long as the key would have, a minute at least. ARGV[1]: by whom, a line end, the token. Returns 1 or 0.
function break_lock()
  --@ unread
  local key, name, leaving, deleted = KEYS[1], KEYS[1], nil, 0
  local by, token = string.match(ARGV[1], "^([^\n]*)\n(.*)$")
  local life, held = math.max(redis.call("pttl", key), 60000), redis.pcall("get", key)
  if held == token then
    deleted = redis.call("del", key)
  elseif type(held) == "table" then
    deleted = unread(token)
  end
  if deleted ~= 1 then return deleted end
  local trace = "fastredlock:broken:" .. key .. ":" .. redis.sha1hex(token)
  redis.pcall("set", trace, life .. " " .. by, "px", life)
  if redis.pcall("exists", "fastredlock:queue:" .. name) ~= 0 then
  --@ notify
    notify()
  end
  return 1
end

-- A row {token, ms} of who holds the key, or of each that reads (of a thousand, those that
-- stay longest); behind them, how many processes wait in the queue at this master. A token
-- is in a form that cannot be taken for a header of RESP, or fill memory: each line of it
-- begins with "=", the first one of a reader's with "&"; of a value too long for a token
-- its length is returned, behind "#". A key of another type is an error, WRONGTYPE. If an
-- ACL refuses STRLEN, GET does.
function inspect()
  --@ readers
  local rows, size = {}, redis.pcall("strlen", KEYS[1])
  local function add(mark, value, ms)
    table.insert(rows, {mark .. string.gsub(value, "\n", "\n="), ms})
  end
  if type(size) == "table" and are_readers() then
    local found = redis.call("zrange", KEYS[1], -1000, -1, "withscores")
    local ahead = redis.call("pttl", KEYS[1]) - found[#found]
    for i = 1, #found, 2 do
      if found[i + 1] + ahead > 0 then add("&", found[i], found[i + 1] + ahead) end
    end
  else
    local is_long = type(size) == "number" and size > 262144
    local value = is_long and size or redis.pcall("get", KEYS[1])
    if type(value) == "table" then return value end
    if value then add(is_long and "#" or "=", value, redis.call("pttl", KEYS[1])) end
  end
  local waiting = redis.pcall("zcount", "fastredlock:queue:" .. KEYS[1], "(-inf", "inf")
  table.insert(rows, type(waiting) == "number" and waiting or -1)
  return rows
end

-- Of several keys, all or nothing. Each looks at all keys before it changes the first,
-- and a server runs nothing in between. A server that refuses a write (no memory, a
-- replica, an ACL, no disk) refuses the first one, so an error reply has changed
-- nothing here, too: Redis lets a script that has written go on.
function acquire_all()
  for _, key in ipairs(KEYS) do
    if redis.call("exists", key) == 1 then return 0 end
  end
  for _, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end
  return 1
end

-- The same once more, on the next connection, where the last was cut before its reply:
-- a key with our own token is ours. One key or several; without ARGV[2], of no expiry.
-- It needs no right but those of SET, the release and EVAL. Sent by its source, and
-- never for tokens of the caller: another user of one would be taken for ourselves.
function acquire_again()
  for _, key in ipairs(KEYS) do
    local held = redis.pcall("get", key)
    if held and held ~= ARGV[1] then return 0 end
  end
  for _, key in ipairs(KEYS) do
    if ARGV[2] then
      redis.call("set", key, ARGV[1], "px", ARGV[2])
    else
      redis.call("set", key, ARGV[1])
    end
  end
  return 1
end

-- Returns 1; 0: one is another's; 2: none is, and one is gone; a text: one was broken.
function extend_all()
  --@ broken
  local answer = 1
  for _, key in ipairs(KEYS) do
    local held = redis.pcall("get", key)
    if type(held) == "table" then return held end
    local told = held ~= ARGV[1] and broken(key)
    if told then return told end
    if not held then answer = 2 elseif held ~= ARGV[1] then return 0 end
  end
  if answer == 2 then return answer end
  for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
  return answer
end

-- The release of several keys. Never stops half-way: it deletes our keys, also where
-- others fail. Each may have a queue here, or elsewhere.
function release_all()
  local answer, free, leaving = 1, {}, nil
  for _, key in ipairs(KEYS) do
    local held = redis.pcall("get", key)
    if held == ARGV[1] then
      redis.call("del", key)
      table.insert(free, key)
    elseif type(held) == "table" and not string.find(held.err, "WRONGTYPE", 1, true) then
      answer = held
    else
      if answer == 1 then answer = 0 end
      if not held then table.insert(free, key) end
    end
  end
  for _, key in ipairs(free) do
    local name = key
    if redis.pcall("exists", "fastredlock:queue:" .. key) ~= 0 then
  --@ notify
      notify()
    end
  end
  return answer
end

-- Of a semaphore, its name: for each slot "1", the key exists, or "0". ARGV: how many.
function look()
  local seen = {}
  for at = 1, tonumber(ARGV[1]) do seen[at] = redis.call("exists", KEYS[1] .. at - 1) end
  return table.concat(seen)
end

-- In every handshake (src_cython/protocol/handshake.pyx): can scripts be run at all,
-- and in them the commands of a release and of an extension? It is sent without a key:
-- an ACL of certain keys does not forbid it.
function probe()
  local refused = {}
  local function try(name, ...)
    local said = redis.pcall(name, "fastredlock:probe", ...)
    if type(said) == "table" and said.err then
      table.insert(refused, name .. ": " .. said.err)
    end
  end
  try("GET")
  try("DEL")
  try("PEXPIRE", 1)
  return refused
end

-- The restart guard (src_cython/master/master.pyx). The marker under KEYS[1] names the
-- server that keeps it; while the quarantine under KEYS[2] exists, no client with a
-- max_ttl asks it; the value is the time (ms) that it was set for. ARGV: the server's
-- run id; max_ttl + 1 s in ms; "any" where the first is drawn and no run id, so that
-- any marker will do. A marker that is missing or another's: the votes from before are
-- lost. No client shortens a quarantine; one with a longer max_ttl makes it longer. It
-- is set first: refused half-way, the script leaves no marker without it.
--
-- With a number in ARGV[3] it is `run id:replicas that have come:promotion` and goes on
-- with the same run id, no new promotion, and at most so many new replicas
-- (goes_on in protocol/handshake.pyx).
--
-- Returns how long the quarantine is to last; -2: there is none; -3: none, and an
-- operator has said of this run id that no lease is from before. An ACL may forbid to
-- read that.
function marker()
  local marker, span = redis.call("get", KEYS[1]), tonumber(ARGV[2])
  local left = redis.call("pttl", KEYS[2])
  local function quarantine(ms)
    redis.call("set", KEYS[2], span, "px", ms)
    left = ms
  end
  local goes_on, spare = marker == ARGV[1] or marker and ARGV[3] == "any", tonumber(ARGV[3])
  if spare and marker then
    local form = "^(.*):(%d+):(.*)$"
    local run, come, promotion = string.match(marker, form)
    local now, since, last = string.match(ARGV[1], form)
    goes_on = run == now and (last == "" or last == promotion)
      and since - come <= spare and (since - come >= 0 or spare > 1e9)
  end
  if not goes_on then
    span = math.max(left, span)
    quarantine(span)
  elseif left ~= -2 then
    local old = tonumber(redis.call("get", KEYS[2]))
    if left == -1 or not old then
      quarantine(math.max(left, span))
    elseif span > old then
      quarantine(left + span - old)
    end
  end
  if marker ~= ARGV[1] and not (goes_on and ARGV[3] == "any") then
    redis.call("set", KEYS[1], ARGV[1])
    marker = ARGV[1]
  end
  if left == -2 and string.match(ARGV[1], "^[^:]*") == redis.pcall("get", KEYS[2] .. ":lifted") then
    left = -3
  end
  return {left, marker}
end

-- Readers, who share a lock: in the key of the lock, as a sorted set: token -> the end of
-- its own ttl (ms, by the server's clock). The key lives until the last of these, so SET
-- NX is refused exactly as long as somebody reads. What changes the set drops the ends
-- that are over, in the same step. Another sorted set than ours is left alone: one
-- whose last member is no token (src_cython/base.pyx), or, if that names no owner, whose
-- expiry is not its largest score. A key that was moved (MIGRATE) keeps its ttl: where
-- the clock is another one there, its expiry says by how much, and the ends follow. (In
-- a script the clock of Redis 7.0 runs on: what it said before counts if it stood still.)
-- Mostly nobody else reads: the functions are made behind that check.
local function readers()
  local now, left, ahead
  local function last(of)
    return redis.call("zrange", KEYS[1], -1, -1, "withscores")[of]
  end
  local function now_ms()
    local time = redis.call("time")
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local function look()
    repeat
      now, left = now_ms(), redis.call("pttl", KEYS[1])
      ahead = now + left - last(2)
    until math.abs(ahead) <= 1 or now_ms() == now
  end
  local function are_readers()
    if redis.pcall("type", KEYS[1]).ok ~= "zset" then return false end
    look()
    local random, owner = string.match(last(1), "^([%w_-]*)(.?)")
    local is_ours = owner == "@" or owner == "" and math.abs(ahead) <= 1000
    return left >= 0 and #random == 27 and is_ours
  end
  local function drop_expired()
    if left >= 0 and math.abs(ahead) > 1 then
      local ends = redis.call("zrange", KEYS[1], 0, -1, "withscores")
      for i = 1, #ends, 2 do
        local gone = string.format("%.0f", ends[i + 1] + ahead)
        redis.call("zadd", KEYS[1], gone, ends[i])
      end
    end
    redis.call("zremrangebyscore", KEYS[1], "-inf", string.format("%.0f", now))
  end
  local function expire_with_last()
    local gone = last(2)
    return not gone or redis.pcall("pexpireat", KEYS[1], gone)
  end
end

local function read()
  local function read(token, ttl)
    local is_new = redis.call("exists", KEYS[1]) == 0
    if not is_new then
  --@ readers
      if not are_readers() then return 0 end
      drop_expired()
    end
    local time = redis.call("time")
    local gone = time[1] * 1000 + math.floor(time[2] / 1000) + ttl
    local last = string.format("%.0f", gone)
    redis.call("zadd", KEYS[1], last, token)
    if not is_new then
      last = redis.call("zrange", KEYS[1], -1, -1, "withscores")[2]
    end
    local done = redis.pcall("pexpireat", KEYS[1], last)
    if done ~= 1 then redis.call("zrem", KEYS[1], token) end
    return done
  end
end

local function unread()
  local function unread(token)
    if redis.call("zcard", KEYS[1]) <= 1 then return redis.call("zrem", KEYS[1], token) end
    if not redis.call("zscore", KEYS[1], token) then return 0 end
  --@ readers
    look()
    drop_expired()
    local deleted = redis.call("zrem", KEYS[1], token)
    expire_with_last()
    return deleted
  end
end

-- Returns 1; 0: the key is a lock's, or no lock. Sent again, it finds its own token.
function acquire_shared()
  --@ read
  return read(ARGV[1], ARGV[2])
end

-- Never brings one back: neither of a key that is gone, nor one whose end is over. As
-- extend; 2: it is no reader any more. (A key of a lock is an error here, WRONGTYPE, as
-- one of readers is for a lock: it is another's.)
function extend_shared()
  --@ readers
  local function find() return redis.call("zscore", KEYS[1], ARGV[1]) end
  if find() then
    look()
    drop_expired()
  end
  if not now or not find() then
  --@ broken
    return broken(KEYS[1]) or 2
  end
  redis.call("zadd", KEYS[1], string.format("%.0f", now + ARGV[2]), ARGV[1])
  local done = expire_with_last()
  return done == 1 and 1 or done
end

-- The last one to go leaves no key.
function release_shared()
  --@ unread
  return unread(ARGV[1])
end
