package script_test

import "slices"

// library is a script of a lock library, as it sends it.
type library struct {
	name   string
	source string
	keys   int
	argv   []string
	want   string // the operation, as describe prints it
}

var libraries = slices.Concat(released, patterns)

// released are scripts as released versions of libraries send them.
var released = []library{
	{
		name: "redsync 4.18.1: unlock",
		source: `
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
`,
		keys: 1,
		argv: []string{"v"},
		want: `release ["a"] "v"; done :1; absent :-1; other :0`,
	},
	{
		name: "redsync: extend, set if absent",
		source: `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then
		return 1
	else
		return 0
	end
`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `acquire or extend ["a"] "v" 1s; done :1; extended :1; other :0`,
	},
	{
		name: "redsync: extend",
		source: `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	else
		return 0
	end
`,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `extend ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name:   "redislock 0.6.0 to 0.9.4: refresh",
		source: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`,
		keys:   1,
		argv:   []string{"v", "1000"},
		want:   `extend ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name:   "redislock: release",
		source: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`,
		keys:   1,
		argv:   []string{"v"},
		want:   `release ["a"] "v"; done :1; absent :0; other :0`,
	},
	{
		name:   "redislock: TTL",
		source: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pttl", KEYS[1]) else return -3 end`,
		keys:   1,
		argv:   []string{"v"},
		want:   `remaining ["a"] "v"; done pttl; absent :-3; other :-3`,
	},
	{
		name: "redislock 0.9.4: obtain",
		source: `
if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[3]) then return redis.status_reply("OK") end

local offset = tonumber(ARGV[2])
if redis.call("getrange", KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[3]) end
`,
		keys: 1,
		argv: []string{"token-meta", "5", "1000"},
		want: `acquire or extend ["a"] "token-meta" first 5 1s; done +OK; extended +OK; other nil`,
	},
	{
		name: "redis-py 4.3.4: release",
		source: `
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    `,
		keys: 1,
		argv: []string{"v"},
		want: `release ["a"] "v"; done :1; absent :0; other :0`,
	},
	{
		name: "redis-py: extend",
		source: `
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == "0" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    `,
		keys: 1,
		argv: []string{"v", "1000", "0"},
		want: `add TTL ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name: "redis-py: extend, replace the TTL",
		source: `
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == "0" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    `,
		keys: 1,
		argv: []string{"v", "1000", "1"},
		want: `extend ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name: "redis-py: reacquire",
		source: `
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 1
    `,
		keys: 1,
		argv: []string{"v", "1000"},
		want: `extend ["a"] "v" 1s; done :1; absent :0; other :0`,
	},
	{
		name: "redlock 4.2.0 and 5.0.0-beta.2: acquire",
		source: `
	-- Return 0 if an entry already exists.
	for i, key in ipairs(KEYS) do
		if redis.call("exists", key) == 1 then
			return 0
		end
	end

	-- Create an entry for each provided key.
	for i, key in ipairs(KEYS) do
		redis.call("set", key, ARGV[1], "PX", ARGV[2])
	end

	-- Return the number of entries added.
	return #KEYS
`,
		keys: 2,
		argv: []string{"v", "1000"},
		want: `acquire ["a" "b"] "v" 1s; done keys; other :0`,
	},
	{
		name: "redlock: release",
		source: `
	local count = 0
	for i, key in ipairs(KEYS) do
		-- Only remove entries for *this* lock value.
		if redis.call("get", key) == ARGV[1] then
			redis.pcall("del", key)
			count = count + 1
		end
	end

	-- Return the number of entries removed.
	return count
`,
		keys: 2,
		argv: []string{"v", "1000"},
		want: `release ["a" "b"] "v"; done count; absent :0; other :0`,
	},
	{
		name: "redlock: extend",
		source: `
	-- Return 0 if an entry exists with a *different* lock value.
	for i, key in ipairs(KEYS) do
		if redis.call("get", key) ~= ARGV[1] then
			return 0
		end
	end

	-- Update the entry for each provided key.
	for i, key in ipairs(KEYS) do
		redis.call("set", key, ARGV[1], "PX", ARGV[2])
	end

	-- Return the number of entries updated.
	return #KEYS
`,
		keys: 2,
		argv: []string{"v", "1000"},
		want: `extend ["a" "b"] "v" 1s; done keys; absent :0; other :0`,
	},
	{
		name: "Laravel 8.83: release",
		source: `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`,
		keys: 1,
		argv: []string{"v"},
		want: `release ["a"] "v"; done :1; absent :0; other :0`,
	},
}
