// Command service is a service with a supervised session, for tests that stop its process. It holds a lock
// and leads an election as long as it can, and prints what happens.
package main
