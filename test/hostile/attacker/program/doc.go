// Program runs one attack of package attacker: its argument is the plan as JSON, and each
// line of its output a report. It ends with its standard input, so that it does not
// outlive a test that was killed.
package main
