// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"maps"
	"slices"
)

// Table is a table in the kernel.
type Table struct {
	Family  uint8 // NFPROTO_INET or another of enum nf_proto
	Name    string
	Chains  []*Chain // in the kernel's order
	Sets    map[string]*Set
	Objects map[string]*Object
}

// Chain is a base chain, which has a hook, or a chain to which other chains jump.
type Chain struct {
	Family uint8
	Table  string
	Name   string
	Type   string // filter, nat or route, if the chain has a hook
	Uses   int    // number of the chain's rules plus the references to the chain
	Hook   *Hook  // nil: not a base chain
	Rules  []Rule
}

// Hook is the hook of a base chain.
type Hook struct {
	Number   uint32 // enum nf_inet_hooks; in a netdev table 0 is ingress
	Priority int32
	Policy   uint32   // NF_ACCEPT or NF_DROP: the verdict at the end of the chain
	Devices  []string // for ingress and egress, sorted
}

// Rule is a list of expressions. The kernel evaluates them in order until one ends the rule.
type Rule struct {
	Family       uint8
	Table, Chain string
	Handle       uint64
	Comment      string
	Expressions
}

// Expressions are the expressions of a rule.
type Expressions []Expression

// Chain returns the chain with a name. It returns nil if there is none.
func (t *Table) Chain(name string) *Chain {
	i := slices.IndexFunc(t.Chains, func(c *Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.Chains[i]
}

// Clone returns a copy whose chains and sets can be changed. The copy shares the expressions with the original, so an expression must be replaced and
// not modified.
func (t *Table) Clone() *Table {
	out := *t
	out.Chains = nil
	for _, c := range t.Chains {
		changed := *c
		changed.Rules = slices.Clone(c.Rules)
		for i := range changed.Rules {
			changed.Rules[i].Expressions = slices.Clone(changed.Rules[i].Expressions)
		}
		out.Chains = append(out.Chains, &changed)
	}
	out.Sets = maps.Clone(t.Sets)
	for name, s := range t.Sets {
		changed := *s
		changed.Elements = slices.Clone(s.Elements)
		out.Sets[name] = &changed
	}
	return &out
}

// Set is a set, or a map whose values are verdicts.
type Set struct {
	Family   uint8
	Table    string
	Name     string
	Flags    uint32 // NFT_SET_INTERVAL and others
	KeyType  uint32 // a number that only nft interprets
	KeyBytes int
	Size     uint32 // largest number of elements; 0: no limit
	Timeout  uint64 // milliseconds
	Merges   bool   // nft merges neighbours when it adds elements
	Elements []Element
}

// Named returns the set with a name. It returns nil if there is none.
func Named(sets []*Set, name string) *Set {
	i := slices.IndexFunc(sets, func(s *Set) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return sets[i]
}

// Times reports whether elements of the set can have a timeout.
func (s *Set) Times() bool { return s.Flags&setTimeout != 0 }

// Dynamic reports whether packets, or another process, change the set.
func (s *Set) Dynamic() bool { return s.Flags&(setEval|setTimeout) != 0 }

// Interval reports whether each element is the start or the end of an interval.
func (s *Set) Interval() bool { return s.Flags&setInterval != 0 }

// Element is a key, or the start or end of an interval of keys.
type Element struct {
	Key     []byte   // nil for the catchall element, which matches all keys without an element
	End     bool     // the first key after an interval
	Verdict *Verdict // the verdict of an element of a map
	Timeout uint64   // milliseconds; 0: the set's timeout
	Expires bool     // whether the element expires after Left
	Left    uint64   // milliseconds
	Comment string
	Unread  error // an error that names attributes which this package does not know
}

// Codes of verdicts that golang.org/x/sys/unix lacks: NF_DROP and NF_ACCEPT (include/uapi/linux/netfilter.h).
const (
	Drop   = 0
	Accept = 1
)

// Verdict is the verdict on a packet.
type Verdict struct {
	Code  int32  // NF_DROP, NF_ACCEPT, NFT_JUMP and others
	Chain string // target of a jump or goto
}

// Object is a named object that rules refer to.
type Object struct {
	Name           string
	Type           uint32 // NFT_OBJECT_COUNTER, NFT_OBJECT_LIMIT
	Limit          *Limit // only for a limit
	Packets, Bytes uint64 // only for a counter
}

// The types of expressions follow. A register is given as a byte offset in one register file, in which register 1 is the first 16 bytes.

// Expression is one of the types below.
type Expression interface{ expression() }

// Unknown is an expression that this package cannot decode completely.
type Unknown struct {
	Name  string
	Cause error
}

// Payload loads bytes of the packet.
type Payload struct {
	To     int    // offset of the first byte in the register file
	Base   uint32 // NFT_PAYLOAD_LL_HEADER and others
	Offset int
	Bytes  int
}

// PayloadSet writes bytes of the packet.
type PayloadSet struct{}

// Cmp compares registers with bytes, as memcmp does.
type Cmp struct {
	From  int
	Op    uint32 // NFT_CMP_EQ and others
	Value []byte
}

// Range compares registers with two bounds.
type Range struct {
	From     int
	Outside  bool // whether it matches values outside of the bounds
	Min, Max []byte
}

// Bitwise applies a mask to the bits, and then inverts the bits in Xor.
type Bitwise struct {
	From, To  int
	Mask, Xor []byte
}

// Byteorder reverses the bytes of each number of Size bytes.
type Byteorder struct{ From, To, Bytes, Size int }

// Meta loads a property of the packet that the kernel knows.
type Meta struct {
	To  int
	Key uint32 // NFT_META_NFPROTO and others
}

// Ct loads a property of the packet's flow from conntrack.
type Ct struct {
	To        int
	Key       uint32 // NFT_CT_STATE and others
	Direction int    // -1: none
}

// CtSet writes a property of the packet's flow in conntrack.
type CtSet struct {
	Key uint32 // NFT_CT_ZONE and others
}

// Fib loads the type of an address in the routing table.
type Fib struct {
	To     int
	Source bool // true: the source address; false: the destination address
}

// Exthdr loads bytes of an extension header or an option. With Present it loads whether the header or option is present.
type Exthdr struct {
	To            int
	Op            uint32 // NFT_EXTHDR_OP_IPV6, TCPOPT or IPV4
	Type          uint8
	Offset, Bytes int
	Present       bool
}

// Lookup looks up a key in a set, or in a map of verdicts.
type Lookup struct {
	Set  string
	From int
	Not  bool
	Map  bool // the verdict of the element becomes the verdict on the packet
}

// Immediate is a verdict.
type Immediate struct{ Verdict Verdict }

// Value loads a constant.
type Value struct {
	To    int
	Bytes []byte
}

// Objref uses an object.
type Objref struct {
	Type uint32
	Name string
}

// Dynset adds or updates an element of a set.
type Dynset struct {
	Set        string
	Op         uint32 // NFT_DYNSET_OP_ADD or NFT_DYNSET_OP_UPDATE
	From       int
	Expression Expression // the expression of the element; nil for none
}

// Limit is a token bucket.
type Limit struct {
	Rate  uint64 // packets or bytes in each Unit
	Unit  uint64 // seconds
	Burst uint32
	Bytes bool
	Over  bool // whether it matches packets above the rate
}

// Connlimit counts connections.
type Connlimit struct {
	Count uint32
	Over  bool
}

// Reject drops the packet and sends an error to the sender.
type Reject struct {
	Type uint32 // NFT_REJECT_ICMP_UNREACH, NFT_REJECT_TCP_RST, or NFT_REJECT_ICMPX_UNREACH
	Code uint8
}

// Notrack exempts the packet from conntrack.
type Notrack struct{}

// Synproxy answers in place of the server, and drops the packet.
type Synproxy struct{}

func (Unknown) expression()    {}
func (Payload) expression()    {}
func (PayloadSet) expression() {}
func (Cmp) expression()        {}
func (Range) expression()      {}
func (Bitwise) expression()    {}
func (Byteorder) expression()  {}
func (Meta) expression()       {}
func (Ct) expression()         {}
func (CtSet) expression()      {}
func (Fib) expression()        {}
func (Exthdr) expression()     {}
func (Lookup) expression()     {}
func (Immediate) expression()  {}
func (Value) expression()      {}
func (Objref) expression()     {}
func (Dynset) expression()     {}
func (Limit) expression()      {}
func (Connlimit) expression()  {}
func (Reject) expression()     {}
func (Notrack) expression()    {}
func (Synproxy) expression()   {}
