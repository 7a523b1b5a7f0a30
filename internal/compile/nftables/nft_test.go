// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// nftLinesOf counts the lines of a script that are rules.
func nftLinesOf(script string) int {
	_, chains, _ := strings.Cut(script, "\tchain ")
	return len(regexp.MustCompile(`(?m)^\t\t[^\t#]`).FindAllString(chains, -1)) -
		len(regexp.MustCompile(`(?m)^\t\ttype `).FindAllString(chains, -1))
}

// TestNftAccepts checks that nft accepts every script of the archives and of random policies, including states and rejections. It loads the scripts
// of the archives and of some policies. The kernel must then have as many rules as the script has lines. nft must accept its own listing, and the
// listing must have the same meaning. explain --live evaluates a copy that is made from such a listing.
func TestNftAccepts(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "eth0", "peer0")
	scripts := archivedScripts(t)
	n, err := subject.ToNftables(oddNames(), "")
	if err != nil {
		t.Fatal(err)
	}
	scripts = append(scripts, n.Script)
	_, seed := subject.Seeded(t)
	batch, read := "", 0
	for i := range testutil.Scaled(120, 200) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := subject.StatefulSubject(t, r, 1+r.IntN(8))
		if i%2 == 0 {
			s = s.Optimized()
		}
		n, err := subject.ToNftables(s.Program, fmt.Sprintf("t%d", i))
		switch {
		case err != nil: // TestHoistKeepsMeaning checks which errors are allowed
		case i < testutil.Scaled(8, 20):
			scripts = append(scripts, n.Script)
		default:
			batch += n.Script
			read++
		}
	}
	subject.Nft(t, batch, "-c", "-f", "-")
	if read < testutil.Scaled(40, 60) {
		t.Errorf("only %d scripts of random policies", read)
	}
	for _, script := range scripts {
		accepts(t, script)
	}
}

// accepts loads a script into the kernel, and checks that nft accepts the listing of it.
func accepts(t *testing.T, script string) {
	t.Helper()
	subject.Nft(t, script, "-f", "-")
	var listing struct {
		Nftables []struct{ Rule *struct{ Table string } }
	}
	if err := json.Unmarshal([]byte(subject.Nft(t, "", "-j", "list", "ruleset")), &listing); err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, o := range listing.Nftables {
		if o.Rule != nil {
			rules++
		}
	}
	if want := nftLinesOf(script); rules != want {
		t.Errorf("the kernel has %d rules, the script %d:\n%s", rules, want, script)
	}
	text := subject.Nft(t, "", "list", "ruleset")
	subject.Nft(t, "", "flush", "ruleset")
	if got, want := nftCode(t, text), nftCode(t, script); !slices.Equal(got, want) {
		t.Errorf("the listing has other instructions than the script:\n%s\nlisting:\n%s", script, text)
	}
}

var (
	nftInstruction = regexp.MustCompile(`(?m)^ *\[ .* \]`)
	nftReject      = regexp.MustCompile(`reject type [02] code [134]`) // port-unreachable, for one family or for the family of the packet
)

// nftCode returns the instructions into which nft compiles a script.
func nftCode(t *testing.T, script string) []string {
	code := nftInstruction.FindAllString(subject.Nft(t, script, "--debug=netlink", "-c", "-f", "-"), -1)
	for i := range code {
		code[i] = nftReject.ReplaceAllString(code[i], "reject")
	}
	return code
}

// archivedScripts returns the scripts in the archives.
func archivedScripts(t *testing.T) (scripts []string) {
	t.Helper()
	for _, file := range subject.Archives(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if script := subject.Section(a, string(plan.TargetNftables)); strings.Contains(script, "table inet floodwall {") {
			scripts = append(scripts, script)
		}
	}
	return scripts
}

// TestNftNames checks names that are keywords of nft, names that differ only in characters that identifiers cannot contain, and names that are too
// long.
func TestNftNames(t *testing.T) {
	p := oddNames()
	n, err := subject.ToNftables(p, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for i, counter := range n.Rules {
		if other, twice := seen[counter]; twice || !regexp.MustCompile(`^[a-z][-._A-Za-z0-9]{1,220}$`).MatchString(counter) {
			t.Errorf("rule %q counts in %q, rule %q too", p.Rules[i].Name, counter, other)
		}
		seen[counter] = p.Rules[i].Name
	}
	if n.Rules[16] != "rule-7" {
		t.Errorf("rule-7 counts in %q", n.Rules[16])
	}
}

func oddNames() *ir.Program {
	long := strings.Repeat("x", 300)
	names := []string{"drop", "ip6", "a b", "a-b", "a:b", "a/b", "ö", "\"", "rule-7", "7", "", long, long + "y", "-", "$x"}
	p := &ir.Program{}
	for _, name := range names {
		p.Rules = append(p.Rules, ir.Rule{Name: name, Verdict: ir.Drop})
		p.Sets = append(p.Sets, ir.Set{Name: name, Dynamic: &ir.Dynamic{}, Max: 8})
		p.Rules = append(p.Rules, ir.Rule{Name: name, Src: []ir.AddrMatch{{Sets: []int{len(p.Sets) - 1}}}})
	}
	return p
}

// TestNftLargeSet loads a set of a million single addresses. Each must be an element of its own, and lines must have a readable length. An algorithm
// with quadratic time would take hours.
func TestNftLargeSet(t *testing.T) {
	const entries = 1_000_000
	var list strings.Builder
	for i := range entries {
		fmt.Fprintf(&list, "66.%d.%d.%d\n", i>>15, i>>7&255, i<<1&255) // with gaps
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "list.txt"), []byte(list.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s := subject.LowerFile(t, filepath.Join(dir, "policy.yaml"),
		"sets: {listed: {file: list.txt}}\nrules: [{from: $listed, then: drop}]")
	n, err := subject.ToNftables(s.Program, "")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(n.Script, "interval") {
		t.Error("single addresses are in a set of intervals")
	}
	_, elements, _ := strings.Cut(n.Script, "elements = {")
	elements, _, _ = strings.Cut(elements, "}")
	if got := strings.Count(elements, ",") + 1; got != entries {
		t.Errorf("%d elements, want %d", got, entries)
	}
	for line := range strings.Lines(n.Script) {
		if len(line) > 130 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
}

// TestNftCompanion checks tables for use together with XDP. They must not contain the rules that XDP decides.
func TestNftCompanion(t *testing.T) {
	// These follow a rule that tests the state, because that rule passes some packets that their limits drop.
	var essential string
	unasked := slices.DeleteFunc(slices.Clone(policy.EssentialNames), func(name string) bool { return name == "echo" })
	after := slices.Index(unasked, "multicast") + 1
	unasked = slices.Insert(unasked, after, "multicast-ipv4")
	unasked = slices.Insert(unasked, slices.Index(unasked, "dhcpv6")+1, "dhcpv6-global")
	for _, name := range append(unasked, "fragments-ipv6") {
		essential += " essential-" + name + "-limited essential-" + name
	}
	essential = essential[1:]
	for _, tt := range []struct{ policy, chains, counters string }{
		{"checks: strict\nrules: [{port: tcp/80, then: drop}]", "", ""},
		{"checks: strict\ndefault: drop\nservices: [{name: web, port: tcp/80}]", "", ""},
		{"rules: [{name: old, state: invalid, then: drop}]", "forged input forward", "rule-old default"},
		{"default: drop\nreplies: drop\nrules: [{name: in, port: tcp/80, then: pass}, {name: old, state: established, then: pass}]",
			"forged input forward", "rule-old " + essential + " default"},
		{"rules: [{name: no, port: tcp/80, then: reject}]", "raw", "rule-no default"},
		{"rules: [{name: no, port: tcp/80, placement: ingress, then: drop}]", "ingress", "rule-no default"},
		{"services: [{name: web, port: tcp/80, track: false}]", "untracked untracked-output", ""},
	} {
		s := subject.Lower(t, tt.policy)
		pl, err := plan.Hoist(s.Program, plan.TargetXDP)
		if err != nil {
			t.Fatal(err)
		}
		n, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0", "eth1"}})
		if err != nil {
			t.Fatal(err)
		}
		var counters []string
		for _, name := range append(n.Rules, n.Default) {
			if name != "" {
				counters = append(counters, name)
			}
		}
		if chains := strings.Join(n.Chains, " "); chains != tt.chains || n.Empty() != (tt.chains == "") {
			t.Errorf("%s: chains %q, want %q", tt.policy, chains, tt.chains)
		}
		delete(n.Checks, packet.VLANDepth) // the hook at ingress does not see frames that fail this check
		if got := strings.Join(counters, " "); got != tt.counters || len(n.Checks) > 0 || len(n.Left) > 0 {
			t.Errorf("%s: counters %q, want %q; checks %v, left %v", tt.policy, got, tt.counters, n.Checks, n.Left)
		}
	}
}

// TestNftCounters checks that counters start at the given values.
func TestNftCounters(t *testing.T) {
	s := subject.Lower(t, "rules: [{name: some, port: tcp/80, then: drop}]")
	pl, err := plan.Hoist(s.Program, plan.TargetNftables)
	if err != nil {
		t.Fatal(err)
	}
	n, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}, Counts: func(name string) (packets, bytes uint64) {
		return map[string]uint64{"rule-some": 7}[name], 1 << 40
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"counter rule-some { packets 7 bytes 1099511627776 }", "counter default { packets 0 bytes 1099511627776 }",
	} {
		if !strings.Contains(n.Script, want) {
			t.Errorf("no %q in\n%s", want, n.Script)
		}
	}
	if _, err := nftables.Generate(pl, nftables.Options{}); err == nil {
		t.Error("no error without devices")
	}
}

// TestNftDevices loads chains for the largest number of devices. In one form of chain, the first rule accepts packets from inside. In the other form,
// each rule tests the device. A rule of the kernel has space for 128 expressions. A chain at ingress names the devices itself.
func TestNftDevices(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	for i := 0; i < 100; i += 2 {
		testutil.Veth(t, fmt.Sprintf("eth%d", i), fmt.Sprintf("eth%d", i+1))
	}
	for _, form := range []struct {
		placement string
		rules     int
	}{{"filter", 1}, {"filter", 9}, {"earliest", 1}} {
		text := "placement: " + form.placement + "\nrules:\n"
		for i := range form.rules {
			text += fmt.Sprintf("  - {name: r%d, port: udp/%d, from: 198.51.100.%d, then: drop}\n", i, 1000+i, i)
		}
		pl, err := plan.Hoist(subject.Lower(t, text).Program, plan.TargetNftables)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 4, 5, 100} {
			var devices []string
			for i := range n {
				devices = append(devices, fmt.Sprintf("eth%d", i))
			}
			script, err := nftables.Generate(pl, nftables.Options{Table: "t", Devices: devices})
			if err != nil {
				t.Fatal(err)
			}
			subject.Nft(t, script.Script, "-f", "-")
			subject.Nft(t, "", "flush", "ruleset")
		}
	}
}
