// Program mutation measures how much of a package's behaviour its tests check. It draws a sample of small
// changes of the package's code, runs the tests with each of them, and lists the changes with which every
// test passes.
//
// "make mutate PKG=./fsm" runs it. There are three kinds of changes, each to one place:
//
//   - a condition: it is negated, an operand of && or || is left out, or a comparison includes its limit
//     where it did not, and vice versa
//   - a returned error becomes nil
//   - an assignment of state, to a field, an element or through a pointer, is left out, as are deletions from
//     maps
//
// All changes of a sample are compiled into one binary per suite of tests, and an environment variable
// selects one of them: a compilation per change would take most of the time. The compiler gets the changed
// code through an overlay (go build -overlay); the sources are not modified. Programs that tests build are
// changed in the same way.
//
// First each test runs separately without a change. This measures its time and the places that it reaches.
// Then each change is tried with the tests that reach its place, fastest first, until one of them fails. A
// timeout is a failure, as it is in the gate, and is counted separately.
//
// The sample depends only on the seed and the package's sources.
package main
