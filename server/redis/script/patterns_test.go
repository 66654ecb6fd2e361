package script_test

// patterns are scripts that do the same as those of the libraries named, and common spellings.
var patterns = []library{
	{
		name: "redislock 0.10: obtain",
		source: `-- arguments: value, length of the token, TTL
local function setTTLs(ttl)
	for _, key in ipairs(KEYS) do
		redis.call("pexpire", key, ttl)
	end
end
local function owned()
	local length = tonumber(ARGV[2])
	for _, key in ipairs(KEYS) do
		if redis.call("getrange", key, 0, length-1) ~= string.sub(ARGV[1], 1, length) then
			return false
		end
	end
	return true
end
local pairsToSet = {}
for _, key in ipairs(KEYS) do
	table.insert(pairsToSet, key)
	table.insert(pairsToSet, ARGV[1])
end
if redis.call("msetnx", unpack(pairsToSet)) ~= 1 then
	if owned() == false then
		return false
	end
	redis.call("mset", unpack(pairsToSet))
end
setTTLs(ARGV[3])
return redis.status_reply("OK")`,
		keys: 2,
		argv: []string{"token-meta", "5", "1000"},
		want: `acquire or extend ["a" "b"] "token-meta" first 5 1s; done +OK; extended +OK; other nil`,
	},
	{
		name: "redislock 0.10: TTL",
		source: `local values = redis.call("mget", unpack(KEYS))
for i, _ in ipairs(KEYS) do
	if values[i] ~= ARGV[1] then return false end
end
local shortest = 0
for _, key in ipairs(KEYS) do
	local ttl = redis.call("pttl", key)
	if ttl > 0 and (shortest == 0 or ttl < shortest) then shortest = ttl end
end
return shortest`,
		keys: 2,
		argv: []string{"v"},
		want: `remaining ["a" "b"] "v"; done pttl; absent nil; other nil`,
	},
	{
		name: "redislock 0.10: refresh",
		source: `local values = redis.call("mget", unpack(KEYS))
for i, _ in ipairs(KEYS) do
	if values[i] ~= ARGV[1] then return false end
end
for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
return redis.status_reply("OK")`,
		keys: 2,
		argv: []string{"v", "1000"},
		want: `extend ["a" "b"] "v" 1s; done +OK; absent nil; other nil`,
	},
	{
		name: "redislock 0.10: release",
		source: `local values = redis.call("mget", unpack(KEYS))
for i, _ in ipairs(KEYS) do
	if values[i] ~= ARGV[1] then return false end
end
redis.call("del", unpack(KEYS))
return redis.status_reply("OK")`,
		keys: 2,
		argv: []string{"v"},
		want: `release all ["a" "b"] "v"; done +OK; absent nil; other nil`,
	},
	{
		name: "Laravel 12: refresh",
		source: `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("expire",KEYS[1],ARGV[2])
else
    return 0
end`,
		keys: 1,
		argv: []string{"v", "10"},
		want: `extend ["a"] "v" 10s; done :1; absent :0; other :0`,
	},
	{
		name:   "Laravel: add",
		source: `return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])`,
		keys:   1,
		argv:   []string{"v", "10"},
		want:   `acquire ["a"] "v" 10s; done +OK; other nil`,
	},
	{
		name: "Spring Integration: obtain",
		source: `local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return true
elseif not holder then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return true
end
return false`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire or extend ["a"] "v" 1s; done :1; extended :1; other nil`,
	},
	{
		name: "Spring Integration: renew",
		source: `if (redis.call('GET', KEYS[1]) == ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return true
end
return false`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `extend ["a"] "v" 1s; done :1; absent nil; other nil`,
	},
	{
		name: "simple-redis-mutex 1.4.0: acquire",
		source: `
local lockKey = KEYS[1]
local lockValue, timeout = ARGV[1], ARGV[2]

if timeout ~= nil and timeout ~= false and timeout ~= "" then
  return redis.call("SET", lockKey, lockValue, "NX", "PX", timeout)
end

return redis.call("SET", lockKey, lockValue, "NX")
`,
		keys: 2,
		argv: []string{"v", "1000", "7"},
		want: `acquire ["a"] "v" 1s; done +OK; other nil`,
	},
	{
		name: "simple-redis-mutex: release",
		source: `
local lockKey = KEYS[1]
local lockValue = ARGV[1]

if redis.call("GET", lockKey) == lockValue
then
    return redis.call("DEL", lockKey)
else
    return 0
end
`,
		keys: 2,
		argv: []string{"v"},
		want: `release ["a"] "v"; done :1; absent :0; other :0`,
	},
	{
		name: "SETNX and PEXPIRE",
		source: `if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
else
    return 0
end`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire ["a"] "v" 1s; done :1; other :0`,
	},
	{
		name: "free or own, one SET",
		source: `local val = redis.call("get", KEYS[1]);
if not val or val == ARGV[1] then
    redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]);
    return "OK"
else
    return "FAIL"
end`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire or extend ["a"] "v" 1s; done $OK; extended $OK; other $FAIL`,
	},
	{
		name: "TTL before the value",
		source: `if redis.call("exists", KEYS[1]) == 0 then
    return redis.call("psetex", KEYS[1], ARGV[1], ARGV[2])
end`,
		keys: 1,
		argv: []string{"1000", "v"},
		want: `acquire ["a"] "v" 1s; done +OK; other nil`,
	},
	{
		name:   "is it mine",
		source: `return redis.call("get", KEYS[1]) == ARGV[1]`,
		keys:   1,
		argv:   []string{"v"},
		want:   `remaining ["a"] "v"; done :1; absent nil; other nil`,
	},
	{
		name:   "who has it",
		source: `return redis.call("GET", KEYS[1])`,
		keys:   1,
		argv:   []string{},
		want:   `read ["a"] ""; done value; absent nil`,
	},
	{
		name:   "constants",
		source: `return redis.call("set", KEYS[1], "locked", "EX", 30, "NX")`,
		keys:   1,
		argv:   []string{},
		want:   `acquire ["a"] "locked" 30s; done +OK; other nil`,
	},
	{
		name: "release all or none",
		source: `local held = 0
for i = 1, #KEYS do
    if redis.call("get", KEYS[i]) == ARGV[1] then held = held + 1 end
end
if held == #KEYS then return redis.call("unlink", unpack(KEYS)) end
return 0`,
		keys: 2,
		argv: []string{"v"},
		want: `release all ["a" "b"] "v"; done keys; absent :0; other :0`,
	},
	{
		name: "redlock-rb 2.0.6: lock",
		source: `if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
end`,
		keys: 1,
		argv: []string{"v", "1000", "yes"},
		want: `acquire or extend ["a"] "v" 1s; done +OK; extended +OK; other nil`,
	},
	{
		name: "redlock-rb 2.0.6: extend",
		source: `if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
end`,
		keys: 1,
		argv: []string{"v", "1000", "no"},
		want: `extend ["a"] "v" 1s; done +OK; absent nil; other nil`,
	},
	{
		name:   "redlock-rb: TTL",
		source: `return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }`,
		keys:   1,
		want:   `read ["a"] ""; done value and pttl; absent value and pttl`,
	},
	{
		name: "aioredlock: lock",
		source: `local holder = redis.call('get', KEYS[1])
if not holder or holder == ARGV[1] then
	return redis.call("set", KEYS[1], ARGV[1], 'PX', ARGV[2])
else
	return redis.error_reply('ERROR')
end`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire or extend ["a"] "v" 1s; done +OK; extended +OK; other -ERR ERROR`,
	},
	{
		name: "pottery: remaining time",
		source: `if redis.call('get', KEYS[1]) == ARGV[1] then
	local pttl = redis.call('pttl', KEYS[1])
	return (pttl > 0) and pttl or 0
else
	return 0
end`,
		keys: 1,
		argv: []string{"v"},
		want: `remaining ["a"] "v"; done pttl; absent :0; other :0`,
	},
	{
		name: "RedLock.net: extend",
		source: `local held = redis.call('get', KEYS[1])
if (held == false) then
	return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0
elseif (held == ARGV[1]) then
	return redis.call('pexpire', KEYS[1], ARGV[2])
else
	return -1
end`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire or extend ["a"] "v" 1s; done :1; extended :1; other :-1`,
	},
	{
		name: "redis-py 2.10: extend",
		source: `local token = redis.call('get', KEYS[1])
if not token or token ~= ARGV[1] then
	return 0
end
local remaining = redis.call('pttl', KEYS[1])
if not remaining then
	remaining = 0
end
if remaining < 0 then
	return 0
end
redis.call('pexpire', KEYS[1], remaining + ARGV[2])
return 1`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `add TTL ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name: "rslock: extend",
		source: `if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 else
	if redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]) ~= nil then return 1 else return 0 end
end`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `extend ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
}
