// Package apierror makes the errors of the HTTP port. Each carries a status in its detail, and the status's code
// of connect and gRPC.
package apierror
