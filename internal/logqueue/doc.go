// Package logqueue writes a program's log without waiting for whoever reads it. A pipe or a terminal that nobody reads
// blocks its writer for as long as it likes, and so does a hung disk: a program that logs in place stops there, with the
// locks it holds at that moment.
package logqueue
