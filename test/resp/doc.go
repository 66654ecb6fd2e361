// Package resp speaks the protocol of Redis for tests, without the conveniences of a client: replies are returned as
// they came.
package resp
