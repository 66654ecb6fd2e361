package resp

// Error is an error reply. Its text begins with its code, such as ERR.
type Error string

// Error returns the text of the reply.
func (e Error) Error() string { return string(e) }
