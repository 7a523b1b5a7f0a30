// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// rules are the generated rules of a target, as loaded into the kernel.
type rules struct {
	loads  []load // in the order in which they are loaded
	undo   []load
	checks packet.CheckSet // the checks that the target makes
	partly packet.CheckSet // the checks that the target makes, but not for all packets
	show   string
}

// load is a command with its input.
type load struct {
	tool  []string
	input string
}

func (l load) run(t *testing.T, policy string) {
	t.Helper()
	cmd := exec.Command(l.tool[0], l.tool[1:]...)
	cmd.Stdin = strings.NewReader(l.input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s\n%s\npolicy:\n%s", l.tool, err, out, l.input, policy)
	}
}

func (r *rules) remove(t *testing.T) {
	t.Helper()
	for _, l := range r.undo {
		l.run(t, "")
	}
}

// compile generates the inputs of the tools.
func (d *differential) compile(s *subject.Subject, pl *plan.Plan) (*rules, error) {
	if d.target != plan.TargetIptables {
		n, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}})
		if err != nil {
			return nil, err
		}
		script := n.Script + nftMembers(s, n)
		return &rules{
			loads:  []load{{[]string{"nft", "-f", "-"}, script}},
			undo:   []load{{[]string{"nft", "-f", "-"}, fmt.Sprintf("delete table inet %[1]s\nadd table netdev %[1]s\ndelete table netdev %[1]s\n", n.Table)}},
			checks: without(s.Program.Checks, n.Left), partly: setOf(n.Checks), show: script,
		}, nil
	}
	x, err := iptables.Generate(pl, iptables.Options{Devices: []string{"eth0"}})
	if err != nil {
		return nil, err
	}
	out := &rules{checks: without(s.Program.Checks, x.Left), partly: setOf(x.Checks), show: x.Script()}
	out.loads = append(out.loads, load{[]string{"ipset", "restore"}, x.IPSet + ipsetMembers(s, x)})
	for tool, text := range map[string]string{"iptables-restore": x.V4, "ip6tables-restore": x.V6} {
		out.loads = append(out.loads, load{[]string{tool, "--noflush"}, text})
		out.loads = append(out.loads, load{[]string{tool, "--noflush"}, hookLines(x.Hooks)})
		out.undo = append(out.undo, load{[]string{tool}, "*raw\nCOMMIT\n*filter\nCOMMIT\n"})
	}
	out.undo = append(out.undo, load{[]string{"ipset", "destroy"}, ""})
	return out, nil
}

// hookLines returns the input that makes the built-in chains jump to the chains of the policy.
func hookLines(hooks []iptables.Hook) string {
	var b strings.Builder
	for _, table := range []string{"raw", "filter"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, h := range hooks {
			if h.Table == table {
				fmt.Fprintf(&b, "-A %s %s\n", h.Chain, h)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func without(checks packet.CheckSet, left []plan.LeftCheck) packet.CheckSet {
	for _, l := range left {
		checks = checks.Without(l.Check)
	}
	return checks
}

func setOf(done map[packet.Check]string) (set packet.CheckSet) {
	for c := range done {
		set = set.With(c)
	}
	return set
}

// nftMembers returns the commands that fill the dynamic sets.
func nftMembers(s *subject.Subject, n *nftables.Ruleset) string {
	var b strings.Builder
	for set, prefixes := range s.Members {
		names, ok := n.Sets[set]
		if !ok {
			continue
		}
		for _, p := range disjoint(prefixes) {
			name := names.Nets6
			switch {
			case p.Addr().Is4() && p.IsSingleIP():
				name = names.V4
			case p.IsSingleIP():
				name = names.V6
			case p.Addr().Is4():
				name = names.Nets4
			}
			text := p.String()
			if p.IsSingleIP() {
				text = p.Addr().String()
			}
			fmt.Fprintf(&b, "add element inet %s %s { %s }\n", n.Table, name, text)
		}
	}
	return b.String()
}

// disjoint returns the prefixes without those that lie within other prefixes.
func disjoint(prefixes []netip.Prefix) (out []netip.Prefix) {
	for i, p := range prefixes {
		if !slices.ContainsFunc(prefixes, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) }) &&
			!slices.Contains(prefixes[:i], p) {
			out = append(out, p)
		}
	}
	return out
}

func ipsetMembers(s *subject.Subject, x *iptables.Ruleset) string {
	var b strings.Builder
	for set, prefixes := range s.Members {
		names, ok := x.Sets[set]
		if !ok {
			continue
		}
		for _, p := range prefixes {
			name, entries := names.Entries(p)
			for _, e := range entries {
				if name != "" {
					fmt.Fprintf(&b, "add -exist %s %s\n", name, e)
				}
			}
		}
	}
	return b.String()
}

func (d *differential) load(t *testing.T, s *subject.Subject, pl *plan.Plan) *rules {
	t.Helper()
	r, err := d.compile(s, pl)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.loads {
		l.run(t, s.Policy)
	}
	return r
}
