-- The queue of those who wait for one resource (src_cython/waiting/gate.pyx), on one of
-- the masters, its gate. It decides when to try, never who holds: a fault of it costs
-- time, and no key of a lock is changed but as by SET NX and the release.
--
--   fastredlock:queue:<resource>   a sorted set: process -> ticket, the time (us, by the
--                                  gate's clock) since when its first caller has waited.
--                                  Or of ">" alone, before all tickets, for 10 s: the
--                                  gate is slow, the queue is at the next master
--   fastredlock:turn:<resource>    a sorted set of those that were notified last of a
--                                  free lock, and have not come: mostly of one. It
--                                  lives for 10 s, so its age is known. Or of "~" and
--                                  the first process, where that one pauses; for 300 ms
--   fastredlock:waiter:<process>   the channel that notifies a process of its turn: the
--                                  message is the resource; behind "~" it is to ask at
--                                  once, behind "?" to ask in 50 ms; behind
--                                  "!fastredlock:" to give up the key, if it is idle there
--
-- `notify` notifies the first of the queue of `key`. It drops a process that has no
-- subscription, one that is `leaving`, and one that was notified 50 ms ago and has not
-- come since (it is stopped: another message would not help). Then it notifies the
-- next, a hundred in one call at the most. Where the queue is of another type, or the
-- ACL refuses, it notifies nobody, and the rest of the script goes on. Commands of
-- their type alone change both keys: a lock may have their names. A process that comes,
-- by ask_turn or take_turn, gets no further message.
--
-- The readers of a process, who share the lock (locks.lua), are another process in here,
-- with an "r" behind its name, and a channel of their own. While somebody reads, the lock
-- is free for them, and not for others: *free* is said of the first of the queue
-- (`left_for`). Who reads passes the turn on to the next, if that one reads, too.
--
-- A host that is suspended leaves many of them in a row, and 50 ms are enough for all
-- together. First, somebody has to notice: where the first has waited for 0.1 s, and
-- may be gone, the last four of the queue are asked to look in 50 ms. (Where all four
-- are of that host as well, the next question of another finds it.) Then, whoever
-- `asks` and finds that a turn has passed, has all before it called, who have 50 ms to
-- ask as well. A call is no turn: only the first of them may try, and the reply to its
-- question is its turn. Who comes later enters again with its own ticket, so it keeps
-- its place.

local function notify()
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
  local function is_read() return redis.pcall("type", key).ok == "zset" end
  local function reads(process) return string.sub(process, -1) == "r" end
  local function left_for(first)
    if first and reads(first) and is_read() then return -2 end
    return redis.call("pttl", key)
  end
  local function drop_gone(asks)
    for _ = 1, 100 do
      local first = redis.call("zrange", queue, 0, 0)[1]
      if not first or first == asks then break end
      local heard = redis.pcall("pubsub", "numsub", "fastredlock:waiter:" .. first)
      if heard[2] ~= 0 and not is_late(first) then break end
      redis.pcall("zrem", queue, first)
    end
  end
  local function notify(asks)
    local has_passed = false
    for _ = 1, 100 do
      local head = redis.pcall("zrange", queue, 0, 0, "withscores")
      local first, heard = head[1], 0
      if not first or first == ">" then return false end
      local late = is_late(first)
      if first == asks or not reads(first) and is_read() then return false end
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
end

-- For the scripts of one key, and for a release script of another text, which may call
-- notify().
local function notify_next()
  local key, name, leaving = KEYS[1], KEYS[2] or KEYS[1], nil
  --@ notify
end

-- A key that is idle in the process that had it last (src_cython/waiting/idle.pyx) has
-- that one's channel in its value: a message there asks for it.
local function recall()
  local function recall()
    local held = redis.pcall("get", key)
    local holder = type(held) == "string" and string.match(held, "^~(%x+)~")
    if holder then call(holder, "!fastredlock:") end
  end
end

-- The release, at the gate: 1 deleted, 0 not; 2 and 3: so is it, and one was notified;
-- 5 and 4 the same, and the queue is at the next master, where the script is to follow.
-- A key that has expired is free: notify the next then, too. ARGV[2] is given by a
-- lease's own release, not by a roll-back: notify also where the key has another value,
-- which may be left at the gate alone, while a quorum knew of this lock. It names the
-- process where nobody waits in it: its entry goes, also where the key is of another
-- type. Mostly nobody waits, so the functions are made behind that check.
local function leave()
  local key, name, leaving = KEYS[1], KEYS[2] or KEYS[1], ARGV[2]
  local has_queue = redis.pcall("exists", "fastredlock:queue:" .. name) ~= 0
  if has_queue and leaving then
    redis.pcall("zrem", "fastredlock:queue:" .. name, leaving)
  end
end

local function notify_if_free()
  if not has_queue then return deleted end
  --@ notify
  if is_moved() then return 4 + deleted end
  if notify() then return 3 - deleted end
  return deleted
end

function release_and_notify()
  --@ leave
  local held, deleted = redis.call("get", key), 0
  if held == ARGV[1] then
    deleted = redis.call("del", key)
  elseif held and not leaving then
    return 0
  end
  --@ notify_if_free
end

-- Enter the queue, or confirm that one is still in it; nothing is locked. Where the lock
-- is free, the first has its turn; it has 50 ms, then the next asker drops it. Where it
-- is not, those that ask again drop a first one that let its turn pass, or (if the ACL
-- allows PUBSUB) that has no subscription: the first tries on all masters, and the key
-- may exist here alone.
--
--   ARGV[1]  the process
--   ARGV[2]  for how long (us) its first caller has waited
--   ARGV[3]  how it asks, one digit; of a semaphore, behind "#", its permits
--     "0"    the first caller is the one of before
--     "1"    it is another one: the ticket is written anew
--     "2"    as "1", in the first question of a connection: PUBLISH is tried first (a
--            user who may not, cannot notify others either, and is to know), and
--            PEXPIRE, or its refusal would leave a queue that never expires; but not on
--            a key that is no queue, which ZADD will refuse, always in one line
--     "3"    as "1", and the process pauses: its turns were lost, because a quorum is
--            held elsewhere, and the key is free here all the same. So it is no turn,
--            and the questions of others do not disturb it (for them the key is held);
--            a release notifies it as ever
--     "4"    as "1", and this gate is slow, as the process has measured: all that are
--            entered here are called, and go to the next master
--
-- Returns four numbers:
--
--   whose    1: it is your turn; 2: another's, already notified; 3: another's, notified
--            by this question; 0: nobody's; 4: the queue is at the next master
--   left     ttl of the key (ms); -2: it is free; -1: it has none, or one not known here.
--            Of a semaphore that of the slot that expires as the one behind `place`
--            others; where `whose` is 1, the slot that is free. Where it is 4: for how
--            long (ms) yet
--   place    in the queue, from 0
--   count    where `whose` is 1: how many wait. Of a semaphore without a free slot the
--            ttl of the slot that expires first, 1 or more
function ask_turn()
  local key, name, leaving = KEYS[1], KEYS[1], nil
  --@ notify
  --@ recall
  local time = redis.call("time")
  local ticket = string.format("%.0f", time[1] * 1000000 + time[2] - ARGV[2])
  local how, permits = string.sub(ARGV[3], 1, 1), tonumber(string.sub(ARGV[3], 3))
  local is_same_entry, is_first_question = how == "0", how == "2"
  local is_paused, is_moving = how == "3", how == "4"
  if is_first_question then
    redis.call("publish", "fastredlock:waiter:", "")
  end
  if is_moving then
    redis.call("zadd", queue, "-inf", ">")
    redis.call("pexpire", queue, 10000)
    for _, each in ipairs(redis.call("zrange", queue, 1, 100)) do
      if each ~= ARGV[1] then call(each, "~") end
    end
    redis.call("zremrangebyrank", queue, 1, -1)
  end
  if is_moved() then return {4, redis.call("pttl", queue), 0, 0} end
  if is_first_question then
    local waiting = redis.pcall("zcard", queue)
    if type(waiting) == "number" then redis.call("pexpire", queue, 60000) end
  end
  if is_same_entry then
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
    left = left_for(redis.call("zrange", queue, 0, 0)[1])
    if left ~= -2 then recall() end
  end
  local head = redis.call("zrange", queue, 0, 0)[1]
  if left == -2 and head == ARGV[1] and is_paused then
    note("~" .. head)
    if is_notified("~" .. head) then redis.pcall("pexpire", turn, 300) end
  elseif left == -2 and head ~= ARGV[1] and (is_paused or is_notified("~" .. head)) then
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
  elseif is_same_entry then
    drop_gone(ARGV[1])
    if not permits and is_read() then notify() end
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

-- For whoever takes the lock: is it behind another, who waits longer? And if it took it,
-- its entry is its next caller's, or goes.
local function turn()
  --@ notify_next
  local time = redis.call("time")
  local now = time[1] * 1000000 + time[2]
  local head = redis.pcall("zrange", queue, 0, 0, "withscores")
  local moved = head[1] == ">" and 4 or 0
  local function is_behind()
    if moved == 4 or not head[1] or head[1] == ARGV[3] then return false end
    local ticket = now - ARGV[4]
    local entered = redis.pcall("zscore", queue, ARGV[3]) or ticket
    if tonumber(head[2]) >= math.min(ticket, tonumber(entered)) then return false end
    come(ARGV[3])
    return true
  end
  local function pass_entry_on()
    if ARGV[5] ~= "-1" then
      local ticket = string.format("%.0f", now - ARGV[5])
      if type(redis.pcall("zadd", queue, ticket, ARGV[3])) ~= "number" then return end
      if redis.pcall("pexpire", queue, 60000) == 1 then return end
    end
    redis.pcall("zrem", queue, ARGV[3])
  end
  local function is_next_first()
    return ARGV[5] ~= "-1" and redis.pcall("zrange", queue, 0, 0)[1] == ARGV[3]
  end
end

-- SET NX PX, at the gate, by a process whose turn it is. ARGV: token; ttl (ms), "0" of
-- no expiry; process; for how long (us) its caller has waited, and its next caller, or
-- "-1". Returns 0: the key exists; 2: one waits longer, and was notified; 1: it is set;
-- 3: so is it, and the next caller waits longest of all. 4 and 5: as 0 and 1, and the
-- queue is at the next master. The process's entry may be that of its next caller,
-- since a round that was set here and lost elsewhere: the caller that tries again is
-- older.
function take_turn()
  --@ turn
  if is_behind() then
    if left_for(head[1]) ~= -2 then return 0 end
    notify()
    return 2
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
  pass_entry_on()
  if KEYS[2] then notify_next_slot() end
  return is_next_first() and 3 or 1
end

-- Leave the queue. A turn that was not used goes to the next. ARGV: process. Sent as
-- well for a caller that was refused and will not wait: so it recalls the key.
function leave_queue()
  --@ notify_next
  --@ recall
  recall()
  local is_first = redis.pcall("zrange", queue, 0, 0)[1] == ARGV[1]
  redis.pcall("zrem", queue, ARGV[1])
  if is_notified(ARGV[1]) or is_first and is_read() then
    come(ARGV[1])
    notify()
  end
  return 1
end

-- As take_turn, of a reader. Also of a first try, which is no process's, "": a reader
-- whom others let in would pass by all that wait, so somebody in the queue refuses it.
function take_turn_shared()
  --@ read
  if ARGV[5] == "-1" and redis.pcall("exists", "fastredlock:queue:" .. KEYS[1]) == 0 then
    return read(ARGV[1], ARGV[2])
  end
  --@ turn
  if is_behind() then
    drop_gone(ARGV[3])
    if left_for(redis.call("zrange", queue, 0, 0)[1]) == -2 then notify() end
    if redis.call("exists", queue) == 1 then return 2 end
  end
  local done = read(ARGV[1], ARGV[2])
  if done ~= 1 then
    come(ARGV[3])
    return done == 0 and moved or done
  end
  forget()
  if moved == 4 then return 5 end
  if not head[1] and ARGV[5] == "-1" then return 1 end
  pass_entry_on()
  if is_next_first() then return 3 end
  notify()
  return 1
end

-- As release_and_notify, of a reader.
function release_shared_and_notify()
  --@ leave
  --@ unread
  local deleted = unread(ARGV[1])
  --@ notify_if_free
end
