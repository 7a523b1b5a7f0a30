package packet

// Query is the question of a DNS query (RFC 1035, 4.1.2).
type Query struct {
	wire []byte // the name as it stands in the packet
}

// Name is the name that is asked for, in lower case, its labels separated by dots, without the dot at the end; "" is the
// root.
func (q Query) Name() string { return string(q.wire) }
