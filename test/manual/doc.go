// Package manual runs the examples of a document as a reader would type them, and compares what they print with what
// the document shows.
//
// All blocks marked sh are one script, in the order of the document. A comment that begins with "<!-- sh" is a block as
// well, which readers do not see. A block marked json or text that follows one shows its output. In it, … stands for any
// text, and whitespace does not count.
package manual
