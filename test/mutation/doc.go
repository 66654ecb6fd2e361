// Program mutation measures what the tests of a package notice. It draws a sample of small
// changes of the package's code, runs the tests with each of them, and lists the changes
// with which every test passes.
//
// "make mutate PKG=./fsm" runs it. Three kinds of code are changed, one place at a time:
//
//   - a condition: it is negated, an operand of && or || is left out, or a comparison
//     includes its limit where it did not and the other way round
//   - a returned error becomes nil
//   - an assignment of state, to a field, an element or through a pointer, is left out, as
//     are deletions from maps
//
// All changes of a sample are compiled into one binary for each suite of tests, and an
// environment variable selects one of them: a compilation for each change would take most
// of the time. The compiler sees the changed code through an overlay (go build -overlay);
// the sources stay as they are. Programs that tests build are changed in the same way.
//
// First each test runs alone and without a change. That shows how long it takes and which
// places it reaches. Then each change is tried with the tests that reach its place, the
// quickest first, until one of them fails. A time-out is a failure, as it is in the gate, and
// is counted apart.
//
// The sample depends on the seed and the package's sources alone.
package main
