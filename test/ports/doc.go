// Package ports finds ports on loopback for processes that a test starts.
//
// To look for a free port, and then give it to a process that listens on it, is a race with every other test
// that does the same. So a test reserves a block of ports for as long as it runs.
package ports
