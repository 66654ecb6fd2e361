// Package argument parses the arguments of commands. Its errors are in the words of Redis, which clients compare.
package argument
