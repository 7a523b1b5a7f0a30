package compile

import (
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// Method is how connections of a protected service are answered. enum method in bpf/protect.h.
type Method uint32

// The methods.
const (
	MethodHost     Method = iota + 1 // our own cookie; the kernel is given the connection (bpf_sk_assign_tcp_reqsk, Linux 6.9)
	MethodListener                   // the cookie of the kernel's listening socket
	MethodRouter                     // the cookie of the kernel's SYNPROXY, which stands behind XDP
)

// Protect is what the loader found out about a protection.
type Protect struct {
	Method  Method
	MSS     [2]uint16 // to announce in IPv4 and IPv6
	WScale  uint8     // to announce
	Window  uint16    // to announce in a SYN-ACK, 0 for MethodRouter
	Options Options   // that the host, or the servers behind it, do
	Slots   [ir.NumOutcomes]uint32
}

// Options are options of TCP that a SYN-ACK may offer when the SYN has them. Flags of struct protection in bpf/protect.h.
type Options uint32

// The options.
const (
	WindowScaling Options = 1 << iota
	SACK
	Timestamps
	ECN
)

// protectPart is what protections need beside the rules that name them. ingress reports whether it takes the program for
// what XDP has passed.
func protectPart(p *ir.Program, found []Protect) (_ part, ingress bool, err error) {
	if len(p.Protections) == 0 {
		return part{}, false, nil
	}
	return part{constants: map[string]any{"protects": true}, shapes: map[string]xdp.Shape{}}, false, nil
}

// usual is what is assumed of a host that nobody has looked at, as when a policy is only compiled. Outcomes are counted
// from slot on.
func usual(p *ir.Protection, slot uint32) Protect {
	found := Protect{Method: MethodHost, MSS: [2]uint16{1460, 1440}, WScale: 7, Window: 64240, Options: WindowScaling | SACK | Timestamps | ECN}
	if p.Router {
		found.Method, found.Window = MethodRouter, 0
	}
	for i := range found.Slots {
		found.Slots[i] = slot + uint32(i)
	}
	return found
}

func outcomeSlots(found []Protect) (slots []uint32) {
	for _, f := range found {
		slots = append(slots, f.Slots[:]...)
	}
	return slots
}
