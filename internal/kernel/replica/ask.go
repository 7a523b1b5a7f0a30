// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limit is the longest time that a question may take.
const Limit = time.Minute

// Tool is the program that loads the rules.
type Tool int

// The tools.
const (
	Nft      Tool = iota // nft
	Iptables             // iptables or ip6tables, of either kind, with ipset
)

// Part identifies a generation's rules.
type Part struct {
	Tool    Tool
	Name    string   // the name of the table of family inet, or of the generation of chains and sets
	Devices []string // the devices of the rules; the packet arrives on the first one
}

// Hook is a hook of netfilter.
type Hook string

// The hooks for packets from outside. A packet passes either Input or Forward.
const (
	Ingress    Hook = "ingress"
	Prerouting Hook = "prerouting"
	Input      Hook = "input"
	Forward    Hook = "forward"
)

// hooks are the hooks in the order in which a packet passes them.
var hooks = []Hook{Ingress, Prerouting, Input, Forward}

// Answer is the result for a packet.
type Answer struct {
	Moved   []string // the counters of the rules that counted the packet, sorted: names in nftables, comments in iptables
	Dropped Hook     // the hook whose rules dropped the packet; "" when none did
	// Lost is the first hook with rules of the part that the packet did not reach although no rule had dropped it. It is "" when there is none. The
	// kernel has then dropped the packet, or holds it: it holds a fragment until it has all fragments.
	Lost Hook
	// State is the state that conntrack gave the packet, as a StateName. It is "" if the rules do not use conntrack, or if the packet reached no hook
	// after conntrack.
	State string
}

// TimeError says that a question took too long.
type TimeError struct {
	Name  string // the name of the generation
	Limit time.Duration
}

func (e *TimeError) Error() string {
	return fmt.Sprintf("asking a copy of %s takes longer than %v", e.Name, e.Limit)
}

// Hint is the remedy.
func (e *TimeError) Hint() string {
	return "its sets are very large; `floodwall explain` with the policy file says what it means for the packet"
}

// Ask sends a frame to a copy of a part and returns the result. The kernel must have the part in the namespace of the caller. p is the decoded frame.
// If the state of p is established or related, conntrack of the copy gets a flow for the packet. If it is untracked, the copy exempts the packet from
// conntrack. The caller must compare the returned state with the state of p.
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

// question is one question in progress.
type question struct {
	part   Part
	frame  []byte
	packet packet.Packet

	host    *host
	rules   rules
	counts  map[string]netfilter.Count // counts of the part
	witness map[string]netfilter.Count // counts of the witnesses, which are rules before and after the part
}

// rules are the operations of a tool on a copy of the rules.
type rules interface {
	// read reads the rules from the kernel, in the host's namespace.
	read(context.Context) error
	// has reports whether there are rules at a hook.
	has(Hook) bool
	// stateful reports whether the rules use conntrack.
	stateful() bool
	// load loads the copy and its witnesses, in the namespace of the question.
	load(context.Context, witness) error
	// counts reads the counters of the copy and of the witnesses.
	counts(context.Context) (part, witness map[string]netfilter.Count, err error)
}

// witness says what the witness rules around the copy do besides counting.
type witness struct {
	device    string
	states    bool // they count by the states of conntrack
	untracked bool // they exempt all packets from conntrack
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

// answer derives the answer from the counters.
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

// came reports whether the packet reached a hook. For Input and Forward it reports whether the packet reached one of the two.
func (q *question) came(h Hook) bool {
	is := func(h Hook) bool { return q.witness[seen(h)].Packets > 0 }
	if h == Input || h == Forward {
		return is(Input) || is(Forward)
	}
	return is(h)
}

// withState adds the state that conntrack gave the packet, from the counts of the witnesses.
func (a *Answer) withState(witness map[string]netfilter.Count) *Answer {
	for _, state := range states {
		if witness[counted(state)].Packets > 0 {
			a.State = state
		}
	}
	return a
}

// states are the names of conntrack's states in both tools, indexed by their value in package packet.
var states = []string{"new", "established", "related", "invalid", "untracked"}

// StateName returns the name of a value of packet.State.
func StateName(state uint32) string { return states[state] }

// The names of the witnesses' counters.
func seen(h Hook) string          { return "seen-" + string(h) }
func passed(h Hook) string        { return "passed-" + string(h) }
func counted(state string) string { return "state-" + state }
