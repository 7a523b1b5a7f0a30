// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// netMachine executes the chains of a table once, for all packets of a kind. The conditions of the rules become formulas, as the conditions of
// instructions do in machine. It returns an error for code that it does not support.
type netMachine struct {
	*decoded
	world *netWorld
	table *nftable.Table // the table whose chain is executed now
	hook  *netHook

	counted map[string]*smt.Term // the packets that each counter counts
	again   map[string]*smt.Term // the packets that each counter counts a second time
	asked   map[int]*smt.Term    // the packets that each limit tests
	faults  []difference         // the packets for which a forbidden event happens
	visited map[netPlace]bool    // rules that packets reach

	dropped, rejected, proxied *smt.Term
	wrongAnswer                *smt.Term // the packets that are rejected with the wrong answer
	depth                      int
}

// netHook is a hook of the kernel for chains.
type netHook struct {
	name      string
	family    uint8 // the family of the tables whose chains run at this hook
	number    uint32
	tracked   bool // the hook is after connection tracking
	forwarded bool // on a router: the TTL has been decremented
	ingress   bool // the frame is unchanged since its arrival
}

// The hooks of an incoming packet in their order, up to routing, and then the hooks of its two possible paths. Connection tracking is between chains
// at prerouting, at priority -200.
var (
	hookNetdev  = &netHook{name: "netdev ingress", family: unix.NFPROTO_NETDEV, ingress: true}
	hookIngress = &netHook{name: "ingress", family: unix.NFPROTO_INET, number: inetIngress, ingress: true}
	hookRaw     = &netHook{name: "prerouting", family: unix.NFPROTO_INET, number: unix.NF_INET_PRE_ROUTING}
	hookInput   = &netHook{name: "input", family: unix.NFPROTO_INET, number: unix.NF_INET_LOCAL_IN, tracked: true}
	hookForward = &netHook{name: "forward", family: unix.NFPROTO_INET, number: unix.NF_INET_FORWARD, tracked: true, forwarded: true}
)

const (
	inetIngress = 5 // NF_INET_INGRESS of include/uapi/linux/netfilter.h
	conntrackAt = -200
)

func newNetMachine(d *decoded, w *netWorld) *netMachine {
	return &netMachine{
		decoded: d, world: w, counted: map[string]*smt.Term{}, again: map[string]*smt.Term{}, asked: map[int]*smt.Term{}, visited: map[netPlace]bool{},
		dropped: d.False(), rejected: d.False(), proxied: d.False(), wrongAnswer: d.False(),
	}
}

// run sends the packets through all hooks. It returns the packets that no chain has stopped.
func (m *netMachine) run() (passed *smt.Term, err error) {
	on := m.True()
	for _, h := range []*netHook{hookNetdev, hookIngress, hookRaw} {
		if m.world.others && h.ingress {
			continue // these hooks belong to the devices
		}
		if on, err = m.chains(h, on); err != nil {
			return nil, err
		}
	}
	forwarded := m.world.forwarded(m.Context)
	here, err := m.chains(hookInput, m.And(on, m.Not(forwarded)))
	if err != nil {
		return nil, err
	}
	through, err := m.chains(hookForward, m.And(on, forwarded))
	if err != nil {
		return nil, err
	}
	return m.Or(here, through), nil
}

// chains runs the chains of a hook in the order of their priority.
func (m *netMachine) chains(h *netHook, on *smt.Term) (*smt.Term, error) {
	for _, t := range m.world.tables {
		if t.Family != h.family {
			continue
		}
		m.table, m.hook = t, h
		var list []*nftable.Chain
		for _, c := range t.Chains {
			if c.Hook != nil && c.Hook.Number == h.number {
				list = append(list, c)
			}
		}
		slices.SortStableFunc(list, func(a, b *nftable.Chain) int { return cmp.Compare(a.Hook.Priority, b.Hook.Priority) })
		for _, c := range list {
			if !h.tracked && c.Hook.Priority > conntrackAt {
				return nil, fmt.Errorf("not covered: chain %s at %s with priority %d, behind connection tracking", c.Name, h.name, c.Hook.Priority)
			}
			accepted := m.False()
			end, err := m.chain(c, on, &accepted)
			if err != nil {
				return nil, err
			}
			if c.Hook.Policy == nftable.Drop {
				m.dropped, end = m.Or(m.dropped, end), m.False()
			}
			on = m.Or(accepted, end)
		}
	}
	return on, nil
}

// mostCalls is the greatest depth of calls between chains: the kernel's bound (NFT_JUMP_STACK_SIZE).
const mostCalls = 16

// chain runs a chain for some packets. It returns the packets that reach the end of the chain, or a return. It adds the packets that the chain
// accepts to accepted.
func (m *netMachine) chain(c *nftable.Chain, on *smt.Term, accepted **smt.Term) (*smt.Term, error) {
	if on.IsFalse() {
		return on, nil
	}
	if m.depth++; m.depth > mostCalls {
		return nil, fmt.Errorf("chain %s is called from %d others", c.Name, m.depth)
	}
	defer func() { m.depth-- }()
	returned := m.False()
	for i, r := range c.Rules {
		if !on.IsFalse() {
			m.visited[netPlace{slices.Index(m.world.tables, m.table), c.Name, i}] = true
		}
		s := &netRule{netMachine: m, start: on, matched: m.True(), gone: m.False(), back: m.False(), returned: m.False(), accepted: accepted}
		if err := s.run(r.Expressions); err != nil {
			return nil, fmt.Errorf("chain %s, rule %d: %w", c.Name, i+1, err)
		}
		returned = m.Or(returned, s.returned)
		on = m.Or(m.And(on, m.Not(s.gone)), s.back)
	}
	return m.Or(returned, on), nil
}

// netRule is the evaluation of a rule.
type netRule struct {
	*netMachine
	start    *smt.Term  // the packets that reach the rule
	matched  *smt.Term  // the packets of start for which all expressions until now hold
	gone     *smt.Term  // the packets of matched that do not continue with the next rule, or continue only when a chain returns them
	back     *smt.Term  // the packets that chains have returned
	returned *smt.Term  // the packets that leave the chain
	accepted **smt.Term // the packets that leave the hook
	file     [64]*smt.Term
}

// alive returns the packets for which all expressions until now hold.
func (s *netRule) alive() *smt.Term { return s.And(s.start, s.matched) }

func (s *netRule) run(r nftable.Expressions) error {
	for _, e := range r {
		if s.matched.IsFalse() {
			return nil
		}
		if err := s.expression(e); err != nil {
			return err
		}
	}
	return nil
}

// need keeps only the packets for which a condition holds.
func (s *netRule) need(t *smt.Term) { s.matched = s.And(s.matched, t) }

// decide gives packets a verdict. Packets that get no verdict continue with the rule's next expression.
func (s *netRule) decide(v nftable.Verdict, which *smt.Term) error {
	mine := s.And(s.matched, which)
	packets := s.And(s.start, mine)
	leave := func() {
		s.gone = s.Or(s.gone, mine)
		s.matched = s.And(s.matched, s.Not(which))
	}
	switch v.Code {
	case nftable.Accept:
		*s.accepted = s.Or(*s.accepted, packets)
	case nftable.Drop:
		s.dropped = s.Or(s.dropped, packets)
	case unix.NFT_RETURN:
		s.returned = s.Or(s.returned, packets)
	case unix.NFT_CONTINUE:
		return nil
	case unix.NFT_JUMP, unix.NFT_GOTO:
		to := s.table.Chain(v.Chain)
		if to == nil {
			return fmt.Errorf("a jump to chain %q, which is not there", v.Chain)
		}
		end, err := s.chain(to, packets, s.accepted)
		if err != nil {
			return err
		}
		if v.Code == unix.NFT_GOTO {
			s.returned = s.Or(s.returned, end)
		} else {
			s.back = s.Or(s.back, end)
		}
	default:
		return fmt.Errorf("not covered: the verdict %d", v.Code)
	}
	leave()
	return nil
}

// count counts packets at a counter.
func (s *netRule) count(name string, packets *smt.Term) {
	before := s.counted[name]
	if before == nil {
		before = s.False()
	}
	s.again[name] = s.Or(orFalse(s.Context, s.again[name]), s.And(before, packets))
	s.counted[name] = s.Or(before, packets)
}

// fault records packets that reach a place which no packet may reach.
func (m *netMachine) fault(packets *smt.Term, format string, args ...any) {
	if !packets.IsFalse() {
		m.faults = append(m.faults, difference{packets, fmt.Sprintf(format, args...)})
	}
}
