// Program generate creates the refund requests of the demo. The seed is fixed, so that the same program
// creates the same file; the file is committed.
package main
