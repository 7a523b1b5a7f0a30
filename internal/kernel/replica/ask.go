package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limit is how long a question may take.
const Limit = time.Minute

// Tool is what rules are loaded with.
type Tool int

// The tools.
const (
	Nft      Tool = iota // nft
	Iptables             // iptables or ip6tables, of either kind, with ipset
)

// Part names a generation's rules.
type Part struct {
	Tool    Tool
	Name    string   // of the table of family inet, or of the generation of chains and sets
	Devices []string // that they are about; the packet comes in by the first
}

// Hook is a place in netfilter where packets meet rules.
type Hook string

// The hooks that packets from outside meet. Input and Forward exclude each other.
const (
	Ingress    Hook = "ingress"
	Prerouting Hook = "prerouting"
	Input      Hook = "input"
	Forward    Hook = "forward"
)

// hooks are the hooks in the order in which a packet meets them.
var hooks = []Hook{Ingress, Prerouting, Input, Forward}

// Answer is what became of the packet.
type Answer struct {
	Moved   []string // the counters of the rules that counted it: names in nftables, comments in iptables; sorted
	Dropped Hook     // whose rules dropped it; "" when none did
	// Lost is the hook with rules of the part that the packet did not come to though none dropped it before; "" when
	// there is no such hook. The kernel dropped it, or keeps it: fragments, until it has them all.
	Lost Hook
	// State is what conntrack said, as StateName calls it; "" when the rules make no use of it, or the packet came to
	// no hook behind it.
	State string
}

// TimeError says that a question took too long.
type TimeError struct {
	Name  string // of the generation
	Limit time.Duration
}

func (e *TimeError) Error() string {
	return fmt.Sprintf("asking a copy of %s takes longer than %v", e.Name, e.Limit)
}

// Hint is the remedy.
func (e *TimeError) Hint() string {
	return "its sets are very large; `floodwall explain` with the policy file says what it means for the packet"
}

// Ask puts a frame to a copy of a part, which the kernel holds in the namespace of the caller. p is the frame decoded; if
// its state is established or related, conntrack of the copy knows a flow that makes it so, and if it is untracked, the
// copy exempts it. Whether conntrack then says what p does is for the caller to compare.
func Ask(ctx context.Context, part Part, frame []byte, p packet.Packet) (*Answer, error) {
	return ask(ctx, part, frame, p, Limit)
}

func ask(ctx context.Context, part Part, frame []byte, p packet.Packet, limit time.Duration) (*Answer, error) {
	if len(frame) < ethernetHeader {
		return nil, fmt.Errorf("a frame of %d bytes is shorter than an Ethernet header", len(frame))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &TimeError{part.Name, limit})
	defer cancel()
	q := &question{part: part, frame: frame, packet: p}
	err := apart(ctx,
		[]step{q.read, q.readHost},
		[]step{q.furnish, q.load, q.know, q.send, q.count})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("asking a copy of %s: %w", part.Name, err)
	}
	return q.answer(), nil
}

// question is one question on its way.
type question struct {
	part   Part
	frame  []byte
	packet packet.Packet

	host    *host
	rules   rules
	counts  map[string]netfilter.Count // of the part
	witness map[string]netfilter.Count // of the rules around it
}

// rules is what a tool does for a copy.
type rules interface {
	// read reads what the kernel holds, in the host's namespace.
	read(context.Context) error
	// has reports whether there are rules at a hook.
	has(Hook) bool
	// stateful reports whether they make use of conntrack.
	stateful() bool
	// load loads the copy with its witnesses, in the namespace of the question.
	load(context.Context, witness) error
	// counts reads the counters of the copy and of the witnesses.
	counts(context.Context) (part, witness map[string]netfilter.Count, err error)
}

// witness is what the rules around the copy do beside counting.
type witness struct {
	device    string
	states    bool // count by the states of conntrack
	untracked bool // exempt all packets from conntrack
}

// six reports whether the question is about IPv6.
func (q *question) six() bool { return q.packet.Kind == packet.IP && q.packet.Src.Is6() }

func (q *question) read(ctx context.Context) error {
	if q.part.Tool == Nft {
		q.rules = &nftRules{name: q.part.Name}
	} else {
		q.rules = &iptablesRules{name: q.part.Name, six: q.six()}
	}
	return q.rules.read(ctx)
}

func (q *question) readHost(context.Context) (err error) {
	q.host, err = readHost(q.part.Devices, q.six())
	return err
}

func (q *question) furnish(context.Context) error { return q.host.furnish(q.frame) }

func (q *question) load(ctx context.Context) error {
	return q.rules.load(ctx, witness{
		device: q.part.Devices[0], states: q.rules.stateful(), untracked: q.packet.Value[packet.State] == packet.StateUntracked,
	})
}

func (q *question) send(context.Context) error { return send(q.part.Devices[0], q.frame) }

func (q *question) count(ctx context.Context) (err error) {
	q.counts, q.witness, err = q.rules.counts(ctx)
	return err
}

// answer reads the counters.
func (q *question) answer() *Answer {
	a := &Answer{}
	for name, c := range q.counts {
		if c.Packets > 0 {
			a.Moved = append(a.Moved, name)
		}
	}
	slices.Sort(a.Moved)
	for _, h := range hooks {
		seen, passed := q.witness[seen(h)].Packets > 0, q.witness[passed(h)].Packets > 0
		switch {
		case seen && !passed:
			a.Dropped = h
			return a.withState(q.witness)
		case q.rules.has(h) && !q.came(h):
			a.Lost = h
			return a.withState(q.witness)
		}
	}
	return a.withState(q.witness)
}

// came reports whether the packet came to a hook, or to the one that excludes it.
func (q *question) came(h Hook) bool {
	is := func(h Hook) bool { return q.witness[seen(h)].Packets > 0 }
	if h == Input || h == Forward {
		return is(Input) || is(Forward)
	}
	return is(h)
}

// withState adds what conntrack said.
func (a *Answer) withState(witness map[string]netfilter.Count) *Answer {
	for _, state := range states {
		if witness[counted(state)].Packets > 0 {
			a.State = state
		}
	}
	return a
}

// states are the states of conntrack as both tools write them, by their value in packet.
var states = []string{"new", "established", "related", "invalid", "untracked"}

// StateName is the name of a value of packet.State.
func StateName(state uint32) string { return states[state] }

// The names of the witnesses.
func seen(h Hook) string          { return "seen-" + string(h) }
func passed(h Hook) string        { return "passed-" + string(h) }
func counted(state string) string { return "state-" + state }
