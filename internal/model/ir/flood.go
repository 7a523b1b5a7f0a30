package ir

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Flood is how floods at a UDP service are told. Clients of the service are known by what it answers: one that it has answered in
// KnownTimes units of KnownUnit, having come again since each time, is known until it stays away for KnownLife. So it takes at least
// KnownTimes-2 whole units to become known. Packets of all others are charged to Start; there is a flood for FloodTime after they have exceeded
// it, and while they exceed Stop.
type Flood struct {
	Service string
	Line    int     // in the policy file
	Col     int     // likewise
	Ports   []Range // of UDP, as values of packet.DPort
	Start   int     // limits, by their index in Program.Limits
	Stop    int
	Each    int // the limit of a source's packets as a known client, of which one in KnownShare is charged; one that exceeds it during a flood is known no more
}

// What makes a client known: bpf/replyflow.h, and bpf/flood.h.
const (
	KnownTimes = 4
	KnownUnit  = 1 << 32 * time.Nanosecond
	KnownLife  = 42 * KnownUnit
	KnownShare = 16
	FloodTime  = 10 * time.Second
)

// OfFlood reports whether r asks about a flood.
func (r *Rule) OfFlood() bool { return r.Known+r.Calm+r.Spent > 0 }

// floodLine says by what floods at a service are told.
func (p *Program) floodLine(f *Flood) string {
	return strings.Join([]string{
		"flood " + f.Service + ":", Match{packet.DPort, f.Ports}.values(),
		"start=" + p.LimitText(f.Start), "stop=" + p.LimitText(f.Stop), fmt.Sprintf("known=%s of 1/%d", p.LimitText(f.Each), KnownShare),
	}, " ")
}
