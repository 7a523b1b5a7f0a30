package control

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// Session is a connection over which the operator gives commands.
type Session struct{ Client, Server netip.AddrPort }

// LockoutError says that a policy would cut a session.
type LockoutError struct {
	Session Session
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

// Sessions finds the SSH session that this process belongs to: sshd says so in SSH_CONNECTION. sudo and su drop the
// variable, so the processes above are asked too.
func Sessions() []Session {
	if s, ok := parseSession(os.Getenv("SSH_CONNECTION")); ok {
		return []Session{s}
	}
	for pid := os.Getppid(); pid > 1; pid = parent(pid) {
		if s, ok := parseSession(environment(pid, "SSH_CONNECTION")); ok {
			return []Session{s}
		}
	}
	return nil
}

// parseSession reads "CLIENT PORT SERVER PORT".
func parseSession(text string) (Session, bool) {
	f := strings.Fields(text)
	if len(f) != 4 {
		return Session{}, false
	}
	client, cerr := endpoint(f[0], f[1])
	server, serr := endpoint(f[2], f[3])
	return Session{client, server}, cerr == nil && serr == nil
}

func endpoint(addr, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(n)), err
}

func environment(pid int, name string) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for _, entry := range bytes.Split(env, []byte{0}) {
		if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return value
		}
	}
	return ""
}

// parent is the process that started one, 0 when it cannot be told.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The command's name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// guard asks the policy and, with XDP, the loaded program that is not attached yet whether they would let the operator's
// sessions live and let them be opened again. Sessions over devices that will not be filtered have nothing to fear.
func (a *apply) guard(context.Context) error {
	for _, s := range a.options.Sessions {
		if !a.filters(s) {
			continue
		}
		for _, is := range sessionPackets() {
			line := fmt.Sprintf("tcp %s > %s %s", s.Client, s.Server, is)
			spec, err := packet.Parse(line)
			if err != nil {
				return fmt.Errorf("session %q: %w", line, err)
			}
			if err := a.allows(s, spec); err != nil {
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
	loose, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
	if err == nil && strings.TrimSpace(string(loose)) == "0" {
		packets = append(packets, ". state=invalid")
	}
	return packets
}

// allows returns an error when a packet of a session would be dropped.
func (a *apply) allows(s Session, spec packet.Spec) error {
	pkt := spec.Packet()
	if verdict, reason := a.compiled.Program.Eval(&pkt, ir.World{Member: a.member}); verdict != ir.Pass {
		return &LockoutError{s, reasonPhrase(a.compiled.Program.ReasonName(reason), reason.Kind == ir.ReasonCheck)}
	}
	if a.program == nil {
		return nil
	}
	answer, err := a.program.Ask(spec.Frame())
	if err != nil {
		return err
	}
	if answer.Verdict != 0 {
		return &LockoutError{s, reasonPhrase(a.manifest.reason(answer.Slot), answer.Slot < uint32(packet.NumChecks))}
	}
	return nil
}

// member reports whether a dynamic set will have an address.
func (a *apply) member(set int, addr netip.Addr) bool {
	return a.compiled.member(set, addr) || slices.ContainsFunc(a.kept[a.compiled.Program.Sets[set].Name],
		func(b Blocked) bool { return b.Prefix.Contains(addr) })
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
