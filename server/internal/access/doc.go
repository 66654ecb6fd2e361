// Package access determines who sent a request and what that caller may do, in the same way on every port.
//
// A port calls [Authenticate] once per connection, or once per request if credentials come with each request. The
// [Caller] that it returns checks every request before the port dispatches it ([Caller.Check]) and removes from
// answers and events what the caller may not read. The state machine checks again what changes the state.
//
// What a request requires is an option of its message in the schema, so a new request without one is refused.
package access
