"""The Lua scripts and their SHA1, known before any server is asked.

Release is the script of the Redlock page, letter by letter: other clients load the
same text, so a server keeps one copy. A test asks a real server for each hash.
"""

from __future__ import annotations

RELEASE = (
    b'if redis.call("get",KEYS[1])==ARGV[1] then '
    b'return redis.call("del",KEYS[1]) else return 0 end'
)
RELEASE_SHA1 = b"79b954ef3863314d4ff2324b4a520053b6dcc018"

# Never re-creates a key: PEXPIRE on one that is gone does nothing, and a key with
# another's token is left alone.
EXTEND = (
    b'if redis.call("get",KEYS[1])==ARGV[1] then '
    b'return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end'
)
EXTEND_SHA1 = b"03be00070a274ed8e4d6ec301dc2dfa5556fc90c"

# What stands under a key, told so that no value can be taken for a header of RESP or
# fill memory: each line of it begins with "="; of a value too long for a token its
# length is told, behind "#". A key of another type is an error, WRONGTYPE. Where an ACL
# refuses STRLEN, GET does.
INSPECT = b"""\
local size = redis.pcall("strlen", KEYS[1])
local told = false
if type(size) == "number" and size > 262144 then
  told = "#" .. size
else
  local value = redis.pcall("get", KEYS[1])
  if type(value) == "table" then return value end
  told = value and "=" .. string.gsub(value, "\\n", "\\n=")
end
return {told, redis.call("pttl", KEYS[1])}"""
INSPECT_SHA1 = b"fed8f3a9a33f7f508e15db71b718e7188ee18b86"

# Of several keys, all or nothing. Each looks at all keys before it changes the first,
# and a server runs nothing in between. What refuses a write (no memory, a replica, an
# ACL, no disk) refuses the first one, so an error reply has changed nothing here, too:
# Redis lets a script that has written go on.
ACQUIRE_ALL = b"""\
for _, key in ipairs(KEYS) do
  if redis.call("exists", key) == 1 then return 0 end
end
for _, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end
return 1"""
ACQUIRE_ALL_SHA1 = b"2e2a8aca65df5faa1308f88f3a8b3300a8c9e63e"

# The same once more, on the next connection, where the last was cut before it answered:
# what our own token has is ours. One key or several; without ARGV[2], of no expiry. It
# needs no right but those of SET, the release and EVAL. Sent by its source, and never
# for tokens that the caller gave: another of their users would be taken for ourselves.
ACQUIRE_AGAIN = b"""\
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
return 1"""
ACQUIRE_AGAIN_SHA1 = b"9fda12318fdbf37ca1acecc8f66dfd05e75b4b82"

# A key of another type than ours is not ours; any other error (an ACL's) is told.
EXTEND_ALL = b"""\
for _, key in ipairs(KEYS) do
  local held = redis.pcall("get", key)
  if type(held) == "table" and not string.find(held.err, "WRONGTYPE", 1, true) then
    return held
  end
  if held ~= ARGV[1] then return 0 end
end
for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
return 1"""
EXTEND_ALL_SHA1 = b"69f400a6bf3aa3202140c2756451cb3896d31503"

# Never stops half-way: what is ours goes, whatever became of the others.
RELEASE_ALL = b"""\
local answer = 1
for _, key in ipairs(KEYS) do
  local held = redis.pcall("get", key)
  if held == ARGV[1] then
    redis.call("del", key)
  elseif type(held) == "table" and not string.find(held.err, "WRONGTYPE", 1, true) then
    answer = held
  elseif answer == 1 then
    answer = 0
  end
end
return answer"""
RELEASE_ALL_SHA1 = b"b12ce592bd30571fc5697b4feb20d914adb8423e"

# In every handshake (src_cython/protocol/rights.pyx): may this user run scripts at all,
# and in them the commands of the release? It is sent without a key: an ACL of certain
# keys does not forbid it.
PROBE = b"""\
local refused = {}
for _, name in ipairs({"get", "del"}) do
  local said = redis.pcall(name, "fastredlock:probe")
  if type(said) == "table" and said.err then table.insert(refused, said.err) end
end
return refused"""
PROBE_SHA1 = b"71fcf834b60efcdcdb878a18e1e9aff030be7c34"

# For a release script that is not ours: which commands it runs is not known.
PROBE_CALL = b"return 1"
PROBE_CALL_SHA1 = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"

# The restart guard (src_cython/master/restart_guard.pyx). The marker under KEYS[1]
# names the server that keeps it; while the quarantine under KEYS[2] stands, no client
# with a max_ttl asks it; the value is the time (ms) that it was set for. ARGV: the
# server's run id; max_ttl + 1 s in ms; "any" where the first is drawn and no run id, so
# that any marker will do. A marker that is missing or another's: the votes from before
# are lost. A quarantine that stands is never shortened, and a client with a longer
# max_ttl makes it longer. It is set first: what is refused half-way leaves no marker
# without it.
MARKER = b"""\
local marker, span = redis.call("get", KEYS[1]), tonumber(ARGV[2])
local left = redis.call("pttl", KEYS[2])
local function quarantine(ms)
  redis.call("set", KEYS[2], span, "px", ms)
  left = ms
end
if marker ~= ARGV[1] and not (marker and ARGV[3] == "any") then
  span = math.max(left, span)
  quarantine(span)
  redis.call("set", KEYS[1], ARGV[1])
  marker = ARGV[1]
elseif left ~= -2 then
  local old = tonumber(redis.call("get", KEYS[2]))
  if left == -1 or not old then
    quarantine(math.max(left, span))
  elseif span > old then
    quarantine(left + span - old)
  end
end
return {left, marker}"""
MARKER_SHA1 = b"688280603bec40a3240a6c858c78ad158bd81c41"
