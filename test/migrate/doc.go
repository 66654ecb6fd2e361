// Package migrate runs every line of Go in docs/migrate against a real node. Each page
// has a file of its name here; what stands between "// begin" and "// end" is what the
// page shows, word for word, which pages_test.go compares.
package migrate
