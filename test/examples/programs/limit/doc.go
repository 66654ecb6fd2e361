// Command limit converts files, at most three at a time on all machines together.
package main
