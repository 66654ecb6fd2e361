package rights

// Script compares and deletes, as lock libraries do.
const Script = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// Command is an example of a command of the Redis port.
type Command struct {
	// Args are its arguments with the name. Key stands for the key.
	Args []string
	// Before are sent before it, without regard to their replies.
	Before [][]string
	// Allowed are the roles that may send it about a key that another identity holds.
	Allowed []string
	// Ends is set if the hold ends when an allowed role sends it.
	Ends bool
	// Open is set if it needs no caller.
	Open bool
}

// Key stands for the key in commands.
const Key = "KEY"

// Commands has an example of every command of the Redis port.
var Commands = map[string]Command{
	"set":     {Args: []string{"SET", Key, "v", "NX", "PX", "1000"}, Allowed: lockers},
	"setnx":   {Args: []string{"SETNX", Key, "v"}, Allowed: lockers},
	"get":     {Args: []string{"GET", Key}, Allowed: readers},
	"exists":  {Args: []string{"EXISTS", Key}, Allowed: readers},
	"ttl":     {Args: []string{"TTL", Key}, Allowed: readers},
	"pttl":    {Args: []string{"PTTL", Key}, Allowed: readers},
	"del":     {Args: []string{"DEL", Key}, Allowed: operators, Ends: true},
	"unlink":  {Args: []string{"UNLINK", Key}, Allowed: operators, Ends: true},
	"delex":   {Args: []string{"DELEX", Key, "IFEQ", "v"}, Allowed: readers},
	"delifeq": {Args: []string{"DELIFEQ", Key, "v"}, Allowed: readers},
	"expire":  {Args: []string{"EXPIRE", Key, "1"}, Allowed: lockers},
	"pexpire": {Args: []string{"PEXPIRE", Key, "1000"}, Allowed: lockers},
	"eval":    {Args: []string{"EVAL", Script, "1", Key, "v"}, Allowed: readers},
	"evalsha": {Args: []string{"EVALSHA", "b70c2384248f88e6b75b9f89241a180f856ad852", "1", Key, "v"}, Allowed: readers,
		Before: [][]string{{"SCRIPT", "LOAD", Script}}},
	"script":   {Args: []string{"SCRIPT", "LOAD", Script}, Allowed: everybody},
	"ql.lock":  {Args: []string{"QL.LOCK", Key, "v", "PX", "1000", "WAIT", "0"}, Allowed: lockers},
	"ql.token": {Args: []string{"QL.TOKEN", Key, "v"}, Allowed: readers},
	"ql.who":   {Args: []string{"QL.WHO", Key}, Allowed: readers},
	"watch":    {Args: []string{"WATCH", Key}, Allowed: readers},
	"unwatch":  {Args: []string{"UNWATCH"}, Allowed: everybody},
	"multi":    {Args: []string{"MULTI"}, Allowed: everybody},
	"exec":     {Args: []string{"EXEC"}, Allowed: lockers, Before: [][]string{{"MULTI"}, {"PEXPIRE", Key, "1000"}}},
	"discard":  {Args: []string{"DISCARD"}, Allowed: everybody, Before: [][]string{{"MULTI"}}},
	"ping":     {Args: []string{"PING"}, Allowed: everybody},
	"echo":     {Args: []string{"ECHO", "text"}, Allowed: everybody},
	"select":   {Args: []string{"SELECT", "0"}, Allowed: everybody},
	"client":   {Args: []string{"CLIENT", "LIST"}, Allowed: everybody},
	"wait":     {Args: []string{"WAIT", "1", "1"}, Allowed: everybody},
	"role":     {Args: []string{"ROLE"}, Allowed: everybody},
	"info":     {Args: []string{"INFO", "everything"}, Allowed: everybody},
	"command":  {Args: []string{"COMMAND", "DOCS"}, Allowed: everybody},
	"auth":     {Args: []string{"AUTH", "ql_unknown"}, Allowed: everybody, Open: true},
	"hello":    {Args: []string{"HELLO", "2"}, Allowed: everybody, Open: true},
	"reset":    {Args: []string{"RESET"}, Allowed: everybody, Open: true},
	"quit":     {Args: []string{"QUIT"}, Allowed: everybody, Open: true},
}

// About returns the arguments of a command with the key in place of Key.
func About(key string, args []string) (with []string) {
	for _, arg := range args {
		if arg == Key {
			arg = key
		}
		with = append(with, arg)
	}
	return with
}
