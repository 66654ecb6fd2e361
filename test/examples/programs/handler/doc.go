// Command handler serves HTTP requests that change a row of a database. The row refuses the write of a process
// that was stopped while it held the lock.
package main
