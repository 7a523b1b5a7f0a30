package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

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
	Carrier *facts.Carrier // that would be cut; nil: the session itself
}

func (e *LockoutError) Error() string {
	if c := e.Carrier; c != nil {
		return fmt.Sprintf("this session, from %s to %s, comes through the tunnel %s: %s drops %s, which carries it. It would go on while this host's own packets "+
			"make replies of the carrier's, and end for good some minutes after them", e.Session.Client, e.Session.Server, c.Device, e.Reason, c)
	}
	return fmt.Sprintf("the policy would drop this session, from %s to %s: %s drops it", e.Session.Client, e.Session.Server, e.Reason)
}

// Hint says what to do.
func (e *LockoutError) Hint() string {
	if c := e.Carrier; c != nil && c.Remote.IsValid() {
		return fmt.Sprintf("let it pass, as with `- {name: %s, from: %s, proto: %d, then: pass}` under rules, or use --force", c.Device, c.Remote, c.Proto)
	} else if c != nil {
		return fmt.Sprintf("let it pass, as with `- {name: %s, port: %s}` under services, or use --force", c.Device, c.By)
	}
	return fmt.Sprintf("let it pass, as with `- {name: admin, from: %s, proto: tcp, port: %d, then: pass}` as the first rule, or use --force",
		e.Session.Client.Addr(), e.Session.Server.Port())
}

// guard asks the policy and, with XDP, the loaded program that is not attached yet whether they would let the operator's
// sessions live and let them be opened again. Sessions over devices that will not be filtered have nothing to fear.
func (t *transaction) guard(context.Context) error {
	for _, s := range t.options.Sessions {
		if !facts.Passes(s.Client.Addr(), t.devices()) {
			if err := t.carries(s); err != nil {
				return err
			}
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

// anyone is an address of the Internet that no other end of a tunnel has: who begins at a port of this host may come from anywhere.
var anyone = map[bool]netip.Addr{true: netip.AddrFrom4([4]byte{8, 8, 4, 4}), false: netip.MustParseAddr("2001:4860:4860::8844")} // by Is4

// carries returns an error when a session comes through a tunnel of which the policy would let none of what may carry it begin anew: from the
// tunnel's other end if that is known, else from anywhere.
func (t *transaction) carries(s facts.Session) error {
	var cut error
	for _, c := range facts.Carriers(s.Client.Addr()) {
		line := fmt.Sprintf("proto=%d %s > %s", c.Proto, c.Remote, c.Addr)
		if !c.Remote.IsValid() {
			to := c.Addr
			if to.IsUnspecified() {
				to = t.ownAddress()
			}
			name, _, _ := strings.Cut(c.By.String(), "/")
			line = strings.TrimSuffix(fmt.Sprintf("%s %s > %s S", name, netip.AddrPortFrom(anyone[to.Is4()], 40000), netip.AddrPortFrom(to, c.By.Port)),
				map[bool]string{true: " S"}[name == "udp"])
		}
		spec, err := packet.Parse(line)
		if err != nil {
			return fmt.Errorf("tunnel %q: %w", line, err)
		}
		err = t.allows(s, spec)
		var lockout *LockoutError
		if !errors.As(err, &lockout) {
			return err // it passes, or cannot be asked
		}
		lockout.Carrier, cut = &c, lockout
		if c.Chosen { // where this host begins the tunnel, its packets open it again
			t.note(lockout.Error() + "; unless this host begins the tunnel, " + strings.TrimSuffix(lockout.Hint(), ", or use --force"))
			cut = nil
		}
	}
	return cut
}

// ownAddress is an address of the devices that are filtered.
func (t *transaction) ownAddress() netip.Addr {
	for _, name := range t.devices() {
		device, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		list, _ := device.Addrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				return p.Addr()
			}
		}
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, 1}) // none: what is asked is about the port
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
		return &LockoutError{Session: s, Reason: reasonPhrase(t.compiled.Program.ReasonName(reason), reason.Kind == ir.ReasonCheck)}
	}
	if t.program == nil {
		return nil
	}
	answer, err := t.program.Ask(spec.Frame())
	if err != nil {
		return err
	}
	if answer.Verdict != 0 {
		return &LockoutError{Session: s, Reason: reasonPhrase(t.manifest.Reason(answer.Slot), answer.Slot < uint32(packet.NumChecks))}
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
