// Package migrate runs every line of Go in docs/migrate against a real node. Each page has a file with its
// name here. The code between "// begin" and "// end" is what the page shows, word for word; pages_test.go
// compares them.
package migrate
