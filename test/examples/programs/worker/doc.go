// Command worker runs on every machine and works on one at a time. It hands over when it is stopped or when an
// operator revokes its leadership, and continues by itself after an outage.
package main
