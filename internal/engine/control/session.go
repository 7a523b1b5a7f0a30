package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// LockoutError says that a policy would cut a session.
type LockoutError struct {
	Session facts.Session
	Reason  string
}

func (e *LockoutError) Error() string {
	return fmt.Sprintf("the policy would drop this session, from %s to %s: %s drops it", e.Session.Client, e.Session.Server, e.Reason)
}

// Hint says what to do.
func (e *LockoutError) Hint() string {
	return fmt.Sprintf("let it pass, as with `- {name: admin, from: %s, proto: tcp, port: %d, then: pass}` as the first rule, or use --force",
		e.Session.Client.Addr(), e.Session.Server.Port())
}

// guard asks the policy and, with XDP, the loaded program that is not attached yet whether they would let the operator's
// sessions live and let them be opened again. Sessions over devices that will not be filtered have nothing to fear.
func (t *transaction) guard(context.Context) error {
	for _, s := range t.options.Sessions {
		if !facts.Passes(s.Client.Addr(), t.devices()) {
			continue
		}
		for _, is := range sessionPackets() {
			line := fmt.Sprintf("tcp %s > %s %s", s.Client, s.Server, is)
			spec, err := packet.Parse(line)
			if err != nil {
				return fmt.Errorf("session %q: %w", line, err)
			}
			if err := t.allows(s, spec); err != nil {
				return err
			}
		}
	}
	return nil
}

// sessionPackets are the packets of a session. Where conntrack does not pick up connections in their middle, one that it
// has not seen begin is invalid to it (nf_conntrack_tcp_loose in the kernel's nf_conntrack-sysctl.rst).
func sessionPackets() []string {
	packets := []string{". state=established", "S"}
	if loose, err := netfilter.Loose(); err == nil && loose != nil && *loose == 0 {
		packets = append(packets, ". state=invalid")
	}
	return packets
}

// allows returns an error when a packet of a session would be dropped.
func (t *transaction) allows(s facts.Session, spec packet.Spec) error {
	pkt := spec.Packet()
	if verdict, reason := t.compiled.Program.Eval(&pkt, ir.World{Member: t.member}); verdict != ir.Pass {
		return &LockoutError{s, reasonPhrase(t.compiled.Program.ReasonName(reason), reason.Kind == ir.ReasonCheck)}
	}
	if t.program == nil {
		return nil
	}
	answer, err := t.program.Ask(spec.Frame())
	if err != nil {
		return err
	}
	if answer.Verdict != 0 {
		return &LockoutError{s, reasonPhrase(t.manifest.Reason(answer.Slot), answer.Slot < uint32(packet.NumChecks))}
	}
	return nil
}

// member reports whether a dynamic set will have an address.
func (t *transaction) member(set int, addr netip.Addr) bool {
	return t.compiled.member(set, addr) || slices.ContainsFunc(t.kept[t.compiled.Program.Sets[set].Name],
		func(b ban.Blocked) bool { return b.Prefix.Contains(addr) })
}

// reasonPhrase is a reason in a sentence.
func reasonPhrase(name string, check bool) string {
	switch {
	case name == "default":
		return "`default: drop`"
	case check:
		return fmt.Sprintf("check %q", name)
	}
	return fmt.Sprintf("rule %q", name)
}
