// Package ports finds ports on loopback for processes that a test starts.
//
// To look for a free port, and to give it to a process that will listen on it, is a race with
// every other test that looks at the same time. So a test takes a block of ports that is its
// own as long as it runs.
package ports
