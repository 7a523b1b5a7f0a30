package nftable

import (
	"maps"
	"slices"
)

// Table is a table as the kernel has it.
type Table struct {
	Family  uint8 // NFPROTO_INET or another of enum nf_proto
	Name    string
	Chains  []*Chain // in the order in which the kernel lists them
	Sets    map[string]*Set
	Objects map[string]*Object
}

// Chain is a chain: of a hook, or one that others call.
type Chain struct {
	Name  string
	Hook  *Hook // nil: others call it
	Rules []Rule
}

// Hook is where a chain hangs.
type Hook struct {
	Number   uint32 // enum nf_inet_hooks; of a netdev table 0 is ingress
	Priority int32
	Policy   uint32 // NF_ACCEPT or NF_DROP: what becomes of a packet that comes to the end of the chain
}

// Rule is a list of expressions, asked in their order until one breaks off.
type Rule []Expression

// Chain is the chain of a name, nil if there is none.
func (t *Table) Chain(name string) *Chain {
	i := slices.IndexFunc(t.Chains, func(c *Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.Chains[i]
}

// Clone is a copy whose chains and sets can be changed. Expressions are shared: a change replaces one.
func (t *Table) Clone() *Table {
	out := *t
	out.Chains = nil
	for _, c := range t.Chains {
		changed := *c
		changed.Rules = slices.Clone(c.Rules)
		for i := range changed.Rules {
			changed.Rules[i] = slices.Clone(changed.Rules[i])
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

// Set is a set, or a map to verdicts.
type Set struct {
	Name     string
	Flags    uint32 // NFT_SET_INTERVAL and others
	KeyBytes int
	Size     uint32 // elements that there may be; 0: any number
	Timeout  uint64 // milliseconds
	Elements []Element
}

// Dynamic reports whether packets, or another process, change the set.
func (s *Set) Dynamic() bool { return s.Flags&(setEval|setTimeout) != 0 }

// Interval reports whether each element begins or ends an interval.
func (s *Set) Interval() bool { return s.Flags&setInterval != 0 }

// Element is a key, or the begin or end of an interval of keys.
type Element struct {
	Key     []byte
	End     bool     // the first key behind an interval
	Verdict *Verdict // of a map
}

// Codes of verdicts beside those of golang.org/x/sys/unix: NF_DROP and NF_ACCEPT (include/uapi/linux/netfilter.h).
const (
	Drop   = 0
	Accept = 1
)

// Verdict is what a packet gets.
type Verdict struct {
	Code  int32  // NF_DROP, NF_ACCEPT, NFT_JUMP and others
	Chain string // of a jump or goto
}

// Object is a named object that rules refer to.
type Object struct {
	Name  string
	Type  uint32 // NFT_OBJECT_COUNTER, NFT_OBJECT_LIMIT
	Limit *Limit // of a limit
}

// The expressions are below. Registers are bytes of one file: register 1 is its first 16 bytes.

// Expression is one of the types below.
type Expression interface{ expression() }

// Payload loads bytes of the packet.
type Payload struct {
	To     int    // the first byte of the register
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
	Outside  bool // it holds outside of the bounds
	Min, Max []byte
}

// Bitwise has each bit masked, and then some inverted.
type Bitwise struct {
	From, To  int
	Mask, Xor []byte
}

// Byteorder reverses the bytes of each number of a size.
type Byteorder struct{ From, To, Bytes, Size int }

// Meta loads what the kernel knows of a packet.
type Meta struct {
	To  int
	Key uint32 // NFT_META_NFPROTO and others
}

// Ct loads what connection tracking knows of a packet.
type Ct struct {
	To        int
	Key       uint32 // NFT_CT_STATE and others
	Direction int    // -1: none is asked for
}

// Fib loads the type of an address in the routing table.
type Fib struct {
	To     int
	Source bool // of the source, else of the destination
}

// Exthdr loads bytes of an extension header or an option, or whether it is there.
type Exthdr struct {
	To            int
	Op            uint32 // NFT_EXTHDR_OP_IPV6, TCPOPT or IPV4
	Type          uint8
	Offset, Bytes int
	Present       bool
}

// Lookup asks a set, or a map for a verdict.
type Lookup struct {
	Set  string
	From int
	Not  bool
	Map  bool // the verdict of the element is that of the packet
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
	Expression Expression // that the element has, nil: none
}

// Limit is a token bucket.
type Limit struct {
	Rate  uint64 // packets or bytes
	Unit  uint64 // in so many seconds
	Burst uint32
	Bytes bool
	Over  bool // it holds for what exceeds the rate
}

// Connlimit counts connections.
type Connlimit struct {
	Count uint32
	Over  bool
}

// Reject drops the packet and answers.
type Reject struct {
	Type uint32 // NFT_REJECT_ICMP_UNREACH, NFT_REJECT_TCP_RST, or NFT_REJECT_ICMPX_UNREACH
	Code uint8
}

// Notrack has connection tracking leave the packet alone.
type Notrack struct{}

// Synproxy answers in the place of a server, and drops the packet.
type Synproxy struct{}

func (Payload) expression()    {}
func (PayloadSet) expression() {}
func (Cmp) expression()        {}
func (Range) expression()      {}
func (Bitwise) expression()    {}
func (Byteorder) expression()  {}
func (Meta) expression()       {}
func (Ct) expression()         {}
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
