"""What the server of a queue of items does in one go: Lua scripts. `item_queue.py` says what each is for.

The keys of a run, in this order: `items` (a hash: the JSON below by name), `ready`, `done` and `aside` (sorted
sets of names by their place in the order), `leases` (a sorted set of names by the time at which the lease ends, in
milliseconds of the server's clock), `owners` (a hash: name by token) and `run` (a hash: `filled`, `round`, and
`seen`, when a worker was last heard).

An item: `o` its place in the order, `s` the state (r ready, l leased, d done, a set aside), `a` attempts counted
in the round `r`, `l` how many of them ended with their worker, `t` the token of the lease, `x` whether the lease
is being given back, `w` why the last attempt failed, `c` the record of the result. What workers ask for all the
time looks at no more than a few items, however many there are.
"""

from __future__ import annotations

from workloads.runtime.resp import Script

KEYS = ("items", "ready", "done", "aside", "leases", "owners", "run")

_COMMON = """
local items, ready, done, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, owners, run = KEYS[5], KEYS[6], KEYS[7]
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function get(name)
  local text = redis.call('HGET', items, name)
  return text and cjson.decode(text)
end
local function put(name, item) redis.call('HSET', items, name, cjson.encode(item)) end
local function owned(token)
  local name = redis.call('HGET', owners, token)
  if name then return name, get(name) end
end
local function drop(name, item)
  redis.call('ZREM', leases, name)
  redis.call('HDEL', owners, item.t)
end
local function set_aside(name, item, why)
  item.s, item.w = 'a', why
  redis.call('ZADD', aside, item.o, name)
  put(name, item)
end
local function make_ready(name, item)
  item.s = 'r'
  redis.call('ZADD', ready, item.o, name)
  put(name, item)
end
local function times(n) return n == 1 and 'once' or n .. ' times' end
local function why_lost(item)
  local why = 'its worker died ' .. times(item.l)
  return item.w and why .. '; before: ' .. item.w or why
end
"""

BEGIN = Script(
    _COMMON
    + """
-- ARGV: round, mode. Returns whether all items are in, and how many items are tried again.
local again = 0
if redis.call('HGET', run, 'round') ~= ARGV[1] then
  redis.call('HSET', run, 'round', ARGV[1])
  local first = redis.call('ZRANGE', aside, 0, 0, 'WITHSCORES')[2]
  for _, name in ipairs(redis.call('ZRANGE', aside, 0, -1)) do
    make_ready(name, get(name))
    again = again + 1
  end
  redis.call('DEL', aside)
  if first and ARGV[2] == 'ordered' then
    -- What comes after an item that is tried again began from another one.
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', done, first, '+inf')) do
      local item = get(name)
      redis.call('ZREM', done, name)
      item.t, item.c = nil, nil
      make_ready(name, item)
    end
  end
end
return {redis.call('HEXISTS', run, 'filled'), again}
"""
)

FILL = Script(
    _COMMON
    + """
-- ARGV: whether these are the last, then for each item its place in the order, its name, and whether it is done.
local added = 0
for i = 2, #ARGV, 3 do
  local order, name, is_done = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2] == '1'
  local item = get(name)
  if not item then
    item = {o = order, a = 0, l = 0}
    added = added + 1
  end
  if is_done and (not item.s or item.s == 'r' or item.s == 'a') then
    redis.call('ZREM', ready, name)
    redis.call('ZREM', aside, name)
    item.s = 'd'
    redis.call('ZADD', done, item.o, name)
    put(name, item)
  elseif not item.s then
    make_ready(name, item)
  end
end
if ARGV[1] == '1' then redis.call('HSET', run, 'filled', 1) end
return added
"""
)

CLAIM = Script(
    _COMMON
    + """
-- ARGV: token, milliseconds of the lease, attempts, mode.
-- Returns {what, unfinished, names set aside, ...}; for an item its name, the attempt, the item done before it and
-- that one's record; for `wait` the milliseconds until a lease ends.
local token, lease, attempts, ordered = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == 'ordered'
local time = now()
local lost = {}
local function unfinished() return redis.call('ZCARD', ready) + redis.call('ZCARD', leases) end
local function hand_out(name, item)
  local before, record = false, false
  if ordered then
    before = redis.call('ZREVRANGEBYSCORE', done, '(' .. item.o, '-inf', 'LIMIT', 0, 1)[1] or false
    record = before and get(before).c or false
  end
  return {'item', unfinished(), lost, name, item.a, before, record}
end
if redis.call('HEXISTS', run, 'filled') == 0 then return {'empty', 0, lost} end

-- The reply to the claim before this one did not arrive.
local name, item = owned(token)
if name then return hand_out(name, item) end

-- Nobody who works was heard for so long that the server itself must have been away: the owners get the time back.
local seen = tonumber(redis.call('HGET', run, 'seen') or time)
redis.call('HSET', run, 'seen', time)
if time - seen > lease * 2 / 3 then
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', time + lease)) do
    redis.call('ZADD', leases, time + lease, each)
  end
end

for _, each in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', time, 'LIMIT', 0, 100)) do
  item = get(each)
  drop(each, item)
  if not item.x then item.l = item.l + 1 end
  item.t, item.x = nil, nil
  if item.a >= attempts then
    set_aside(each, item, why_lost(item))
    lost[#lost + 1] = each
  else
    make_ready(each, item)
  end
end

local next_lease = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
name = redis.call('ZRANGE', ready, 0, 0)[1]
if not name or (ordered and next_lease) then
  if not next_lease then return {'finished', 0, lost} end
  return {'wait', unfinished(), lost, math.max(1, next_lease - time)}
end
redis.call('ZREM', ready, name)
item = get(name)
local round = redis.call('HGET', run, 'round')
if item.r ~= round then item.r, item.a, item.l, item.w = round, 0, 0, nil end
item.s, item.t, item.a = 'l', token, item.a + 1
put(name, item)
redis.call('ZADD', leases, time + lease, name)
redis.call('HSET', owners, token, name)
return hand_out(name, item)
"""
)

RENEW = Script(
    _COMMON
    + """
-- ARGV: token, milliseconds of the lease, whether the lease is to be given back. Returns whether it is held.
local name, item = owned(ARGV[1])
if not name then return 0 end
local time = now()
redis.call('HSET', run, 'seen', time)
redis.call('ZADD', leases, time + tonumber(ARGV[2]), name)
if ARGV[3] == '1' and not item.x then
  item.a, item.x = item.a - 1, 1
  put(name, item)
end
return 1
"""
)

COMMIT = Script(
    _COMMON
    + """
-- ARGV: token, name, record. Returns whether the record is the item's.
local item = get(ARGV[2])
if not item or item.t ~= ARGV[1] then return 0 end
if item.s == 'l' then
  drop(ARGV[2], item)
  item.s, item.c, item.w, item.x = 'd', ARGV[3], nil, nil
  redis.call('ZADD', done, item.o, ARGV[2])
  put(ARGV[2], item)
end
return 1
"""
)

FAIL = Script(
    _COMMON
    + """
-- ARGV: token, reason, attempts. Returns whether the lease was held, and whether the item was set aside.
local name, item = owned(ARGV[1])
if not name then return {0, 0} end
drop(name, item)
item.t, item.x = nil, nil
if item.a >= tonumber(ARGV[3]) then
  set_aside(name, item, ARGV[2])
  return {1, 1}
end
item.w = ARGV[2]
make_ready(name, item)
return {1, 0}
"""
)

RELEASE = Script(
    _COMMON
    + """
-- ARGV: token. Returns whether the lease was held.
local name, item = owned(ARGV[1])
if not name then return 0 end
drop(name, item)
if not item.x then item.a = item.a - 1 end
item.t, item.x = nil, nil
make_ready(name, item)
return 1
"""
)

REOPEN = Script(
    _COMMON
    + """
-- ARGV: for each item its name and the record that is not true any more. Returns how many are worked on again.
local again = 0
for i = 1, #ARGV, 2 do
  local item = get(ARGV[i])
  if item and item.s == 'd' and (item.c or '') == ARGV[i + 1] then
    redis.call('ZREM', done, ARGV[i])
    item.t, item.c, item.r = nil, nil, nil
    make_ready(ARGV[i], item)
    again = again + 1
  end
end
return again
"""
)
