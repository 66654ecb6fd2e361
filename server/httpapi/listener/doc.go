// Package listener accepts the connections of the HTTP port. It bounds them, completes their TLS handshakes,
// and logs why a connection was closed that sent no request, which net/http itself does not log.
package listener
