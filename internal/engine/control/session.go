// SPDX-License-Identifier: Apache-2.0

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
	Carrier *facts.Carrier // the tunnel's carrier that the policy would drop; nil: it would drop the session itself
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

// guard checks that the policy passes the packets of the operator's sessions, and of new sessions of the same kind. With XDP it also asks the loaded
// program, which is not attached yet. A session that arrives on a device without filtering is not at risk.
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

// Admits returns a *LockoutError if the running policy would drop a new connection of the same kind as one of the sessions. It asks what is loaded in
// the kernel, with the present bans and limits. A session that arrives on a device without filtering is not at risk.
func (in Instance) Admits(ctx context.Context, sessions []facts.Session, devices []string) error {
	for _, s := range sessions {
		if !facts.Passes(s.Client.Addr(), devices) {
			continue
		}
		line := fmt.Sprintf("tcp %s > %s S", netip.AddrPortFrom(s.Client.Addr(), s.Client.Port()^1), s.Server) // from a port that the session does not use
		spec, err := packet.Parse(line)
		if err != nil {
			return fmt.Errorf("session %q: %w", line, err)
		}
		e, err := in.Explain(ctx, spec)
		if err != nil {
			return err
		}
		if e.Verdict != ir.Pass.String() {
			return &LockoutError{Session: s, Reason: reasonPhrase(e.Reason, false)}
		}
	}
	return nil
}

// anyone is an address of the Internet that stands for any client. It is used for a tunnel whose other end is unknown, since anyone may open it.
var anyone = map[bool]netip.Addr{true: netip.AddrFrom4([4]byte{8, 8, 4, 4}), false: netip.MustParseAddr("2001:4860:4860::8844")} // by Is4

// carries returns an error if a session comes through a tunnel that could not be opened again: the policy would drop every packet that opens it. Such
// a packet comes from the tunnel's other end if that is known, else from any address.
func (t *transaction) carries(s facts.Session) error {
	var cut error
	for _, c := range facts.Carriers(s.Client.Addr()) {
		to := c.Addr
		if to.IsUnspecified() {
			if own := t.ownAddress(); !c.Remote.IsValid() || c.Remote.Is4() == own.Is4() {
				to = own
			}
		}
		line := fmt.Sprintf("proto=%d %s > %s", c.Proto, c.Remote, to)
		if !c.Remote.IsValid() {
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
			return err // the policy passes the packet, or the program cannot be asked
		}
		lockout.Carrier, cut = &c, lockout
		if c.Chosen { // this host may open the tunnel: then its own packets open it again
			t.note(lockout.Error() + "; unless this host begins the tunnel, " + strings.TrimSuffix(lockout.Hint(), ", or use --force"))
			cut = nil
		}
	}
	return cut
}

// ownAddress returns an address of the devices that are filtered.
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
	return netip.AddrFrom4([4]byte{192, 0, 2, 1}) // no device has an address; the question is only about the port
}

// sessionPackets returns the packets of a session that the policy must pass. If nf_conntrack_tcp_loose is 0, conntrack calls a connection invalid
// whose start it has not seen (the kernel's nf_conntrack-sysctl.rst). In that case the list includes a packet with the state invalid.
func sessionPackets() []string {
	packets := []string{". state=established", "S"}
	if loose, err := netfilter.Loose(); err == nil && loose != nil && *loose == 0 {
		packets = append(packets, ". state=invalid")
	}
	return packets
}

// allows returns an error when the policy would drop a packet of a session.
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

// member reports whether a dynamic set will contain an address.
func (t *transaction) member(set int, addr netip.Addr) bool {
	return t.compiled.member(set, addr) || slices.ContainsFunc(t.kept[t.compiled.Program.Sets[set].Name],
		func(b ban.Ban) bool { return b.Prefix.Contains(addr) })
}

// reasonPhrase describes a reason as part of a sentence.
func reasonPhrase(name string, check bool) string {
	switch {
	case name == "default":
		return "`default: drop`"
	case check:
		return fmt.Sprintf("check %q", name)
	}
	return fmt.Sprintf("rule %q", name)
}
