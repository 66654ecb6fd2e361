// Program generate makes the refund requests of the demo. The seed is fixed, so that
// the same program gives the same file; the file is committed.
package main
