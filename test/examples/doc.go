// Package examples shows the SDK at work against a real node: what programs do with locks, and what they
// observe. Every example runs with the tests, and its output is checked. The same holds for the program in
// the README.
//
//   - example_test.go: lock and unlock, try, wait for a limited time, Do, a lost hold, a queue;
//   - recipes_test.go: readers and writers, semaphores, multi-lock acquires, a sync.Locker, a job that runs
//     once although many start it, an election and its observers;
//   - fencing_test.go: a resource that rejects late writers by their token. The package fencing below this
//     one does the same with a database and a process that is really stopped;
//   - readme_test.go: the README's program, built and run unchanged;
//   - main_test.go: the node that all examples use.
package examples
