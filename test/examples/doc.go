// Package examples shows the SDK at work against a real node: what a program does with
// locks, and what it gets to see. Every example runs with the tests, and its output is
// checked; so is the program in the README.
//
//   - example_test.go: lock and unlock, try, wait for a while, Do, a lost hold, a queue;
//   - recipes_test.go: readers and writers, semaphores, several locks at once, a sync.Locker,
//     a job that is done once by all who start it, an election and its observers;
//   - fencing_test.go: a resource that refuses latecomers by their token; with a database
//     and a process that is really stopped in the package fencing below this one;
//   - readme_test.go: the README's program, built and run as it stands there;
//   - main_test.go: the node that all of them talk to.
package examples
