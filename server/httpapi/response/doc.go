// Package response is the response writer of the HTTP port. It bounds the time and the memory of a response,
// and holds the state of its request.
package response
