// Package mutants tests the tests: each seeded bug must make one of them fail.
//
// Each file in testdata is a seeded bug: a small change of the product's sources that breaks one guarantee,
// and the tests that must catch it. The sources are not modified: the compiler gets a changed copy (go build
// -overlay), so that nothing has to be restored and several bugs can be tried concurrently. "make mutants"
// tries all of them and prints a table: the bug, what caught it, after how many tries, and the first line of
// that test's output.
//
// A data file is similar to a patch with a header:
//
//	Caught-By: ./fsm ^TestScripts$/^fifo$
//	Caught-By: ./fsm ^TestModel$
//
//	The last waiter is granted first.
//
//	--- fsm/queue.go
//	@@
//	 	// unchanged lines, after a space
//	-	// removed lines, after a minus
//	+	// added lines, after a plus
//
// The file's name is the bug's. A catcher is a package and a pattern for -test.run; the cheapest comes first,
// and they take turns. A change has no line numbers. The lines that it replaces must occur in the source
// exactly once; otherwise the data file is out of date, which is an error. Besides Caught-By there may be
//
//	Symptom: hang     the bug makes a test hang: a timeout counts
//	Symptom: panic    the bug makes a test panic
//	Within: 2m        the time limit for one try; the default is a minute
//
// The following do not count as caught: a change that does not compile, a timeout or panic that the data file
// does not declare, a test that also fails without the change, and a test that is skipped. An ordinary test
// checks, without trying the bugs, that every change still matches its source and compiles, that its catchers
// exist and that no required bug is missing.
package mutants
