"""The Lua scripts and their SHA1, which no server needs to compute.

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
# another's token is left alone. Returns 1; 0: another's; 2: gone.
EXTEND = (
    b'local held=redis.call("get",KEYS[1]) if held==ARGV[1] then '
    b'return redis.call("pexpire",KEYS[1],ARGV[2]) else return held and 0 or 2 end'
)
EXTEND_SHA1 = b"ed30988115d9849da791d33d434d0807403c478a"

# The value of a key, in a form that cannot be taken for a header of RESP, or fill
# memory: each line of it begins with "="; of a value too long for a token its length
# is returned, behind "#". A key of another type is an error, WRONGTYPE. Where an ACL
# refuses STRLEN, GET does. Last, how many processes wait in the queue at this master.
INSPECT = b"""\
local size = redis.pcall("strlen", KEYS[1])
local shown = false
if type(size) == "number" and size > 262144 then
  shown = "#" .. size
else
  local value = redis.pcall("get", KEYS[1])
  if type(value) == "table" then return value end
  shown = value and "=" .. string.gsub(value, "\\n", "\\n=")
end
local waiting = redis.pcall("zcount", "fastredlock:queue:" .. KEYS[1], "(-inf", "inf")
if type(waiting) ~= "number" then waiting = -1 end
return {shown, redis.call("pttl", KEYS[1]), waiting}"""
INSPECT_SHA1 = b"243a3c5056e4329927748f6fc3c54c8529f34759"

# Of several keys, all or nothing. Each looks at all keys before it changes the first,
# and a server runs nothing in between. A server that refuses a write (no memory, a
# replica, an ACL, no disk) refuses the first one, so an error reply has changed nothing
# here, too: Redis lets a script that has written go on.
ACQUIRE_ALL = b"""\
for _, key in ipairs(KEYS) do
  if redis.call("exists", key) == 1 then return 0 end
end
for _, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end
return 1"""
ACQUIRE_ALL_SHA1 = b"2e2a8aca65df5faa1308f88f3a8b3300a8c9e63e"

# The same once more, on the next connection, where the last was cut before its reply:
# a key with our own token is ours. One key or several; without ARGV[2], of no expiry.
# It needs no right but those of SET, the release and EVAL. Sent by its source, and
# never for tokens of the caller: another user of one would be taken for ourselves.
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

# A key of another type than ours is not ours; any other error (an ACL's) is returned.
# Returns 1; 0: one is another's; 2: none is, and one is gone.
EXTEND_ALL = b"""\
local answer = 1
for _, key in ipairs(KEYS) do
  local held = redis.pcall("get", key)
  if type(held) == "table" and not string.find(held.err, "WRONGTYPE", 1, true) then
    return held
  end
  if not held then answer = 2 elseif held ~= ARGV[1] then return 0 end
end
if answer == 2 then return answer end
for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
return answer"""
EXTEND_ALL_SHA1 = b"f953ddacea73e35e48809243f7b16a62cab64b32"

# In every handshake (src_cython/protocol/handshake.pyx): can scripts be run at all, and
# in them the commands of a release and of an extension? It is sent without a key: an
# ACL of certain keys does not forbid it.
PROBE = b"""\
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
return refused"""
PROBE_SHA1 = b"9dc61fd101aadbfb6cca5077cbc8cd79428898a1"

# For a release script that is not ours: which commands it runs is not known.
PROBE_CALL = b"return 1"
PROBE_CALL_SHA1 = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"

# The restart guard (src_cython/master/master.pyx). The marker under KEYS[1]
# names the server that keeps it; while the quarantine under KEYS[2] exists, no client
# with a max_ttl asks it; the value is the time (ms) that it was set for. ARGV: the
# server's run id; max_ttl + 1 s in ms; "any" where the first is drawn and no run id, so
# that any marker will do. A marker that is missing or another's: the votes from before
# are lost. No client shortens a quarantine; one with a longer max_ttl makes it longer.
# It is set first: refused half-way, the script leaves no marker without it.
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

# The queue of those who wait for one resource (src_cython/waiting/gate.pyx), on one
# of the masters, its gate. It decides when to try, never who holds: a fault of it
# costs time, and no key of a lock is changed but as by SET NX and the release.
#
#   fastredlock:queue:<resource>   a sorted set: process -> ticket, the time (us, by the
#                                  gate's clock) since when its first caller has waited.
#                                  Or of ">" alone, before all tickets, for 10 s: the
#                                  gate is slow, the queue is at the next master
#   fastredlock:turn:<resource>    a sorted set of those that were notified last of a
#                                  free lock, and have not come: mostly of one. It
#                                  lives for 10 s, so its age is known. Or of "~" and
#                                  the first process, where that one pauses; for 300 ms
#   fastredlock:waiter:<process>   the channel that notifies a process of its turn: the
#                                  message is the resource; behind "~" it is to ask at
#                                  once, behind "?" to ask in 50 ms; behind
#                                  "!fastredlock:" to give up the key, if it rests there
#
# `notify` notifies the first of the queue of `key`. It drops a process that has no
# subscription, one that is `leaving`, and one that was notified 50 ms ago and has not
# come since (it is stopped: another message would not help). Then it notifies the next,
# a hundred in one call at the most. Where the queue is of another type, or the ACL
# refuses, it notifies nobody, and the rest of the script goes on. Commands of their
# type alone change both keys: a lock may have their names. A process that comes, by
# ASK_TURN or TAKE_TURN, gets no further message.
#
# A host that is suspended leaves many of them in a row, and 50 ms are enough for all
# together. First, somebody has to notice: where the first has waited for 0.1 s, and may
# be gone, the last four of the queue are asked to look in 50 ms. (Where all four are of
# that host as well, the next question of another finds it.) Then, whoever `asks` and
# finds that a turn has passed, has all before it called, who have 50 ms to ask as well.
# A call is no turn: only the first of them may try, and the reply to its question is
# its turn.
# Who comes later enters again with its own ticket, so it keeps its place.
_NOTIFY = b"""\
local queue, turn = "fastredlock:queue:" .. name, "fastredlock:turn:" .. name
local function call(process, how)
  return redis.pcall("publish", "fastredlock:waiter:" .. process, how .. name)
end
local function is_notified(process)
  return type(redis.pcall("zscore", turn, process)) == "string"
end
local function is_late(process)
  local left = is_notified(process) and redis.pcall("pttl", turn)
  return type(left) == "number" and left <= 9950
end
local function forget() return redis.pcall("zremrangebyrank", turn, 0, -1) end
local function note(process)
  forget()
  local noted = redis.pcall("zadd", turn, 0, process)
  if noted == 1 then redis.pcall("pexpire", turn, 10000) end
end
local function is_moved()
  return type(redis.pcall("zscore", queue, ">")) == "string"
end
local function come(process)
  if is_notified(process) then redis.pcall("zrem", turn, process) end
end
local function notify(asks)
  local has_passed = false
  for _ = 1, 100 do
    local head = redis.pcall("zrange", queue, 0, 0, "withscores")
    local first, heard = head[1], 0
    if not first or first == ">" then return false end
    local late = is_late(first)
    if first == asks then return false end
    if first ~= leaving and not late then
      heard = redis.pcall("publish", "fastredlock:waiter:" .. first, key)
    end
    if type(heard) ~= "number" then return false end
    if heard > 0 then
      if not is_notified(first) then note(first) end
      local last = redis.pcall("zrange", queue, -4, -1)
      if not asks and last[1] and last[#last] ~= first then
        local now = redis.pcall("time")
        local waited = (now[1] or 0) * 1000000 + (now[2] or 0) - head[2]
        for _, each in ipairs(waited > 100000 and last or {}) do
          if each ~= first then call(each, "?") end
        end
      elseif asks and has_passed then
        for _, next in ipairs(redis.pcall("zrange", queue, 1, 100)) do
          if next == asks then break end
          redis.pcall("zadd", turn, 0, next)
          call(next, "~")
        end
      end
      return true
    end
    has_passed = has_passed or late
    redis.pcall("zrem", queue, first)
  end
end
"""

_OF_ONE_KEY = b"local key, name, leaving = KEYS[1], KEYS[2] or KEYS[1], nil\n" + _NOTIFY
NOTIFY_NEXT = (
    _OF_ONE_KEY  # for a release script of another text, which may call notify()
)

# The release, at the gate: 1 deleted, 0 not; 2 and 3: so is it, and one was notified;
# 5 and 4 the same, and the queue is at the next master, where the script is to follow.
# A key that has expired is free: notify the next then, too. ARGV[2] is given by a
# lease's own release, not by a roll-back: notify also where the key has another value,
# which may be left at the gate alone, while a quorum knew of this lock. It names the
# process where nobody waits in it: its entry may be left as well. Mostly nobody waits,
# so the functions are made behind that check.
RELEASE_AND_NOTIFY = (
    b"""\
local key, name, leaving = KEYS[1], KEYS[2] or KEYS[1], ARGV[2]
local held, deleted = redis.call("get", key), 0
if held == ARGV[1] then
  deleted = redis.call("del", key)
elseif held and not leaving then
  return 0
end
if redis.pcall("exists", "fastredlock:queue:" .. name) == 0 then return deleted end
"""
    + _NOTIFY
    + b"""\
if leaving then redis.pcall("zrem", queue, leaving) end
if is_moved() then return 4 + deleted end
if notify() then return 3 - deleted end
return deleted"""
)
RELEASE_AND_NOTIFY_SHA1 = b"80809afd7801b87b430c2e8bbf7e762435f2b80c"

# The release of several keys. Never stops half-way: it deletes our keys, also where
# others fail. Each may have a queue here, or elsewhere.
RELEASE_ALL = (
    b"""\
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
"""
    + _NOTIFY
    + b"""\
    notify()
  end
end
return answer"""
)
RELEASE_ALL_SHA1 = b"014ce3a4748a0415ce0337a59eeffebabc17ee3d"

# A key that rests in the process that had it last (src_cython/round/local.pyx) has that
# one's channel in its value: a message there asks for it.
_RECALL = b"""\
local function recall()
  local held = redis.pcall("get", key)
  local holder = type(held) == "string" and string.match(held, "^~(%x+)~")
  if holder then call(holder, "!fastredlock:") end
end
"""

# Of one key, or of many: then ARGV has those behind the process once for each key, and
# the answer so many times four numbers, -1 in front where a queue is refused.
_OF_EACH_KEY = (
    b"""\
local given, answers, leaving = ARGV, {}, nil
for at, name in ipairs(KEYS) do
local key = name
local ARGV = {given[1], given[2 * at], given[2 * at + 1]}
"""
    + _NOTIFY
    + _RECALL
    + b"local function ask()\n"
)

# Enter the queue, or confirm that one is still in it; nothing is locked. ARGV: process;
# for how long (us) its first caller has waited; "1" where that is another than before,
# "2" in the first question of a connection: then PUBLISH is tried first (a user who may
# not, cannot notify others either, and is to know), and PEXPIRE, or its refusal would
# leave a queue that never expires; but not on a key that is no queue, which ZADD will
# refuse, always in one line. "3" where the process pauses: its turns were lost, because
# a quorum is held elsewhere, and the key is free here all the same. So it is no turn,
# and the questions of others do not disturb it (they get -1, "held", as its ttl is not
# known here); a release notifies it as ever. "4" where the process has measured that
# this gate is slow: all that are entered here are called, and go to the next master.
# Returns {4, for how long (ms) yet, 0, 0} where they have gone; else {1: it is your
# turn, 2: another's, already notified, 3: by this question, 0: else; ttl left (ms) or
# -2; place from 0; where it is ours, how many wait}. Where the lock is free, the first
# has its turn; it has 50 ms, then the next asker drops it.
# Of a semaphore it is the ttl of the slot that expires as the one behind `place` others
# (the first for place 0), and where none is free, `count` is that of the first, from 1.
# Where it is not, those that ask again drop a first one that let its turn pass, or (if
# the ACL allows PUBSUB) that has no subscription: the first tries on all masters, and
# the key may exist here alone.
ASK_TURN = (
    _OF_EACH_KEY
    + b"""\
local time = redis.call("time")
local ticket = string.format("%.0f", time[1] * 1000000 + time[2] - ARGV[2])
local how, permits = string.sub(ARGV[3], 1, 1), tonumber(string.sub(ARGV[3], 3))
if how == "2" then
  redis.call("publish", "fastredlock:waiter:", "")
end
if how == "4" then
  redis.call("zadd", queue, "-inf", ">")
  redis.call("pexpire", queue, 10000)
  for _, each in ipairs(redis.call("zrange", queue, 1, 100)) do
    if each ~= ARGV[1] then call(each, "~") end
  end
  redis.call("zremrangebyrank", queue, 1, -1)
end
if is_moved() then return {4, redis.call("pttl", queue), 0, 0} end
if how == "2" then
  local waiting = redis.pcall("zcard", queue)
  if type(waiting) == "number" then redis.call("pexpire", queue, 60000) end
end
if how == "0" then
  redis.call("zadd", queue, "nx", ticket, ARGV[1])
else
  redis.call("zadd", queue, ticket, ARGV[1])
end
if redis.pcall("pexpire", queue, 60000) ~= 1 then
  redis.pcall("zrem", queue, ARGV[1])
  redis.call("pexpire", queue, 60000)
end
come(ARGV[1])
local left, whose, slot, expiries = 0, 0, nil, {}
if permits then
  for i = 1, permits do
    local at = (time[2] + i) % permits
    local ms = redis.call("pttl", name .. at)
    if ms == -2 then
      left, slot, key = -2, at, name .. at
      break
    end
    expiries[i] = ms < 0 and math.huge or ms
  end
else
  left = redis.call("pttl", key)
  if left ~= -2 then recall() end
end
local head = redis.call("zrange", queue, 0, 0)[1]
if left == -2 and head == ARGV[1] and how == "3" then
  note("~" .. head)
  if is_notified("~" .. head) then redis.pcall("pexpire", turn, 300) end
elseif left == -2 and head ~= ARGV[1] and (how == "3" or is_notified("~" .. head)) then
  left = -1
elseif left == -2 then
  if head ~= ARGV[1] and is_notified(head) and not is_late(head) then
    whose = 2
  elseif head ~= ARGV[1] and notify(ARGV[1]) then
    whose = 3
  end
  if redis.call("zrange", queue, 0, 0)[1] == ARGV[1] then
    note(ARGV[1])
    whose = 1
  end
elseif how == "0" then
  for _ = 1, 100 do
    head = redis.call("zrange", queue, 0, 0)[1]
    if head == ARGV[1] then break end
    local heard = redis.pcall("pubsub", "numsub", "fastredlock:waiter:" .. head)
    if heard[2] ~= 0 and not is_late(head) then break end
    redis.pcall("zrem", queue, head)
  end
end
local count = whose == 1 and redis.call("zcard", queue) or 0
local place = redis.call("zrank", queue, ARGV[1]) or 0
if whose == 1 and permits then
  left = slot
elseif permits and left == 0 then
  table.sort(expiries)
  left, count = expiries[math.min(place + 1, permits)], math.max(expiries[1], 1)
  if left == math.huge then left = -1 end
  if count == math.huge then count = -1 end
end
return {whose, left, place, count}
end
if #KEYS == 1 then return ask() end
local is_done, answer = pcall(ask)
if not is_done then answer = {-1, -2, 0, 0} end
for place = 1, 4 do answers[4 * at - 4 + place] = answer[place] end
end
return answers"""
)
ASK_TURN_SHA1 = b"66ef8a19a5418da476ddadd58fde9449261241a4"

# SET NX PX, at the gate, by a process whose turn it is. ARGV: token; ttl (ms), "0" of
# no expiry; process; for how long (us) its caller has waited, and its next caller, or
# "-1". Returns 0: the key exists; 2: one waits longer, and was notified; 1: it is set;
# 3: so is it, and the next caller waits longest of all. 4 and 5: as 0 and 1, and the
# queue is at the next master. The process's entry may be that of its next caller, since
# a round that was set here and lost elsewhere: the caller that tries again is older.
TAKE_TURN = (
    _OF_ONE_KEY
    + b"""\
local time = redis.call("time")
local now = time[1] * 1000000 + time[2]
local head = redis.pcall("zrange", queue, 0, 0, "withscores")
local moved = head[1] == ">" and 4 or 0
if moved == 0 and head[1] and head[1] ~= ARGV[3] then
  local ticket = now - ARGV[4]
  local entered = redis.pcall("zscore", queue, ARGV[3]) or ticket
  if tonumber(head[2]) < math.min(ticket, tonumber(entered)) then
    come(ARGV[3])
    if redis.call("pttl", key) ~= -2 then return 0 end
    notify()
    return 2
  end
end
local is_set
if ARGV[2] == "0" then
  is_set = redis.call("set", key, ARGV[1], "nx")
else
  is_set = redis.call("set", key, ARGV[1], "nx", "px", ARGV[2])
end
if not is_set then
  come(ARGV[3])
  return moved
end
forget()
if moved == 4 then return 5 end
local function notify_next_slot()
  local slots = {}
  for at = 1, tonumber(ARGV[6]) do slots[at] = name .. at - 1 end
  if redis.pcall("exists", unpack(slots)) == #slots then return end
  for _, slot in ipairs(slots) do
    if redis.pcall("exists", slot) == 0 then
      key = slot
      return notify()
    end
  end
end
if ARGV[5] == "-1" then
  redis.pcall("zrem", queue, ARGV[3])
  if KEYS[2] then notify_next_slot() end
  return 1
end
local ticket = string.format("%.0f", now - ARGV[5])
local entered = redis.pcall("zadd", queue, ticket, ARGV[3])
if type(entered) == "number" and redis.pcall("pexpire", queue, 60000) ~= 1 then
  redis.pcall("zrem", queue, ARGV[3])
end
if KEYS[2] then notify_next_slot() end
if redis.pcall("zrange", queue, 0, 0)[1] == ARGV[3] then return 3 end
return 1"""
)
TAKE_TURN_SHA1 = b"b02f9a2d5ca82b6ccced4ad336b43b869df55a2c"

# Of a semaphore, its name: for each slot "1", the key exists, or "0". ARGV: how many.
LOOK = b"""\
local seen = {}
for at = 1, tonumber(ARGV[1]) do seen[at] = redis.call("exists", KEYS[1] .. at - 1) end
return table.concat(seen)"""
LOOK_SHA1 = b"ba6226a459432a58533acc745344d5813b7e276b"

# Leave the queue. A turn that was not used goes to the next. ARGV: process. Sent as
# well for a caller that was refused and will not wait: so it recalls the key.
LEAVE_QUEUE = (
    _OF_ONE_KEY
    + _RECALL
    + b"""\
recall()
redis.pcall("zrem", queue, ARGV[1])
if is_notified(ARGV[1]) then
  come(ARGV[1])
  notify()
end
return 1"""
)
LEAVE_QUEUE_SHA1 = b"e91e987ec0d58c66e171e756dbf247cff283bd00"

# By the names that the table of the core has for them (protocol/commands.pyx).
OF_LOCKS = {
    "extend": (EXTEND, EXTEND_SHA1),
    "release": (RELEASE, RELEASE_SHA1),
    "inspect": (INSPECT, INSPECT_SHA1),
    "acquire_all": (ACQUIRE_ALL, ACQUIRE_ALL_SHA1),
    "extend_all": (EXTEND_ALL, EXTEND_ALL_SHA1),
    "release_all": (RELEASE_ALL, RELEASE_ALL_SHA1),
    "acquire_again": (ACQUIRE_AGAIN, ACQUIRE_AGAIN_SHA1),
    "look": (LOOK, LOOK_SHA1),
    "probe": (PROBE, PROBE_SHA1),
    "marker": (MARKER, MARKER_SHA1),
}
OF_QUEUES = {
    "ask_turn": (ASK_TURN, ASK_TURN_SHA1),
    "leave_queue": (LEAVE_QUEUE, LEAVE_QUEUE_SHA1),
    "take_turn": (TAKE_TURN, TAKE_TURN_SHA1),
    "release_and_notify": (RELEASE_AND_NOTIFY, RELEASE_AND_NOTIFY_SHA1),
}


def with_prefix(source: bytes, prefix: bytes) -> bytes:
    """Return a script with the prefix before all names of its own.

    The keys that it is given have it already.
    """
    quoted = b"".join(b"\\%03d" % byte for byte in prefix)
    return source.replace(b'"fastredlock:', b'"' + quoted + b"fastredlock:")
