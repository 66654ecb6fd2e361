// Program runs one attack of package attacker. Its argument is the plan as JSON, and each line of its output
// a report. It ends when its standard input is closed, so that it does not outlive a test that was killed.
package main
