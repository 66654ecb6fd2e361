// Package mutants asks of the tests what the tests ask of the product: would they notice?
//
// Each file in testdata is a seeded bug: a small change of the product's sources that
// breaks one promise, and which tests are to catch it. The sources stay as they are; the
// compiler is shown a changed copy (go build -overlay), so that nothing has to be put
// back and several bugs can be tried side by side. "make mutants" tries all of them and
// prints a table: the bug, who caught it, in how many tries, what that test said first.
//
// A data file reads like a patch, after what it is about:
//
//	Caught-By: ./fsm ^TestScripts$/^fifo$
//	Caught-By: ./fsm ^TestModel$
//
//	Who came last is granted first.
//
//	--- fsm/queue.go
//	@@
//	 	// lines as they stand, behind a space
//	-	// lines that go, behind a minus
//	+	// lines that come, behind a plus
//
// The file's name is the bug's. Catchers are a package and a pattern for -test.run, the
// cheapest first; they take turns. A change names no line numbers: what stands must be
// found in the source exactly once, or the data file is out of date, which is an error.
// Beside Caught-By there may be
//
//	Symptom: hang     the bug shows in a test that never ends: a time-out counts
//	Symptom: panic    it shows in a panic
//	Within: 2m        how long a try may take; a minute if it is not said
//
// What does not count as caught: a change that does not compile, a time-out or a panic
// that the data file does not expect, a test that fails without the change, one that is
// skipped. An ordinary test checks, without trying anything, that every change still
// fits its source and compiles, that its catchers exist and that no bug is missing from
// the list.
package mutants
