// Package callers determines who sends each HTTP request, checks what it may send, and ends the requests and the idle
// connections of callers that lose their credential or their rights.
package callers
