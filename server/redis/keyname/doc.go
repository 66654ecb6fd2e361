// Package keyname maps the keys of the Redis protocol to lock names, one to one.
//
// A key may be any bytes; a lock name is UTF-8 in segments: see [wire.ValidName]. What a name may not have is
// percent-encoded, and '%' always is, so decoding gives the key back. Most keys are names already: lock:orders:42 in
// database 0 is the lock lock:orders:42.
//
//	database  key       lock name
//	0         a         <prefix>a
//	0         a//b      <prefix>a%2F/b
//	0         db3/a     <prefix>%64b3/a    because that would be key a of database 3
//	0                   <prefix>%
//	3         a         <prefix>db3/a
package keyname
