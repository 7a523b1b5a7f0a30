// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestCovered checks for pairs of rules whether the compiler removes the second rule because the first rule matches all of its packets.
func TestCovered(t *testing.T) {
	const sets = `
sets:
  a: [10.0.0.0/8, 2001:db8::/32]
  bans: {dynamic: true, max: 5}
  empty: []
`
	for _, c := range []struct {
		first, second string
		covered       bool
	}{
		{"from: 10.0.0.0/8", "from: 10.1.2.3", true},
		{"from: 10.0.0.0/8", "from: 11.1.2.3", false},
		{"from: 10.0.0.0/8", "to: 10.1.2.3", false},
		{"from: 10.1.2.3", "from: 10.0.0.0/8", false},
		{"from: 10.1.2.3", "from: 10.1.2.3, port: 80", true},
		{"from: 10.1.2.3, port: 80", "from: 10.1.2.3", false},
		{"from: 10.0.0.0/8, port: tcp/80", "from: 10.1.2.3, port: tcp/80", true},
		{"from: 10.0.0.0/8, port: 80-90", "from: 10.1.2.3, port: tcp/81", true},
		{"port: 80-90", "from: 10.1.2.3, port: tcp/81", true},
		{"port: tcp/80", "from: 10.1.2.3, port: tcp/80, ttl: 1", true},
		{"from: 0.0.0.0/0", "from: 10.1.2.3", true},
		{"from: 0.0.0.0/0", "from: 2001:db8::1", false},
		{"from: ['0.0.0.0/0', '::/0']", "from: 2001:db8::1", true},
		{"from: 2001:db8::/32", "from: 2001:db8::1", true},
		{"from: 10.0.0.3-10.0.0.9", "from: 10.0.0.6-10.0.0.7", true},
		{"from: 10.0.0.3-10.0.0.9", "from: 10.0.0.6-10.0.0.10", false},
		{"from: $a", "from: 10.1.2.3", true},
		{"from: $a", "from: [10.1.2.3, 2001:db8::5]", true},
		{"from: $a", "from: [10.1.2.3, 2001:db9::5]", false},
		{"from: $a", "from: $a, to: 192.0.2.1", true},
		{"from: $bans", "from: $bans, ttl: 1", true},
		{"from: $bans", "from: $a", false},
		{"from: [$a, $bans]", "from: $bans", true},
		{"from: [$a, $bans]", "from: [10.5.5.5, $bans]", true},
		{"from: [10.5.5.5, $bans]", "from: [10.5.5.6, $bans]", false},
		{"to: $a", "from: 192.0.2.1, to: 10.1.2.3", true},
		{"from: 192.0.2.0/24, to: $a", "from: 192.0.2.1, to: 10.1.2.3", true},
		{"from: 192.0.2.0/24, to: $a", "from: 192.0.3.1, to: 10.1.2.3", false},
		{"not: {from: 10.1.2.3}", "not: {from: 10.0.0.0/8}", true},
		{"not: {from: 10.0.0.0/8}", "not: {from: 10.1.2.3}", false},
		{"not: {from: 10.0.0.0/8}", "from: 11.0.0.0/8", false}, // the first rule covers the second, but the compiler does not detect this
		{"from: $a, not: {from: 10.1.2.3}", "from: 10.2.0.0/16, not: {from: 10.1.2.3}", true},
	} {
		text := fmt.Sprintf("%srules: [{name: first, %s, then: drop}, {name: second, %s, then: pass}]", sets, c.first, c.second)
		s := subject.Lower(t, text)
		optimized, notes := compile.Optimize(s.Program)
		if got := len(optimized.Rules) == 1; got != c.covered || len(notes) == 1 != c.covered {
			t.Errorf("{%s} before {%s}: covered is %v, notes %q, want %v", c.first, c.second, got, notes, c.covered)
		}
	}
}

// TestFirstCover checks a rule that two earlier rules cover. The note must name the one that decides.
func TestFirstCover(t *testing.T) {
	s := subject.Lower(t, `rules:
  - {name: ports, port: 1-1000, then: drop}
  - {name: net, from: 10.0.0.0/8, then: pass}
  - {name: both, from: 10.1.2.3, port: 80, then: pass}
`)
	_, notes := compile.Optimize(s.Program)
	if len(notes) != 1 || !strings.Contains(notes[0], `"both" never decides: "ports"`) {
		t.Errorf("notes: %q", notes)
	}
}

// TestManyNamedRules optimizes many rules. According to their fields, each could cover each other rule. A comparison of all pairs would take minutes.
func TestManyNamedRules(t *testing.T) {
	for name, rule := range map[string]func(i int) (addr string, dst bool, port uint32){
		"sources": func(i int) (string, bool, uint32) {
			return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), false, 80
		},
		"destinations":        func(i int) (string, bool, uint32) { return fmt.Sprintf("2001:db8::%x", i), true, 80 },
		"ports of one prefix": func(i int) (string, bool, uint32) { return "10.0.0.0/8", false, uint32(i) },
	} {
		const n = 40_000
		p := &ir.Program{}
		for i := range n {
			addr, dst, port := rule(i)
			var b addrs.Builder
			if err := b.AddText(addr); err != nil {
				t.Fatal(err)
			}
			r := ir.Rule{Name: fmt.Sprint(i), Match: []ir.Match{{Field: packet.DPort, Values: []ir.Range{{First: port, Last: port}}}}}
			match := []ir.AddrMatch{{Sets: []int{i}}}
			if r.Src = match; dst {
				r.Src, r.Dst = nil, match
			}
			p.Sets = append(p.Sets, ir.Set{Static: b.Set(), Entries: 1, Max: 1})
			p.Rules = append(p.Rules, r)
		}
		runtime.LockOSThread() // for cpuTime
		start := cpuTime(t)
		optimized, _ := compile.Optimize(p)
		took := cpuTime(t) - start
		runtime.UnlockOSThread()
		t.Logf("%s: %v", name, took)
		if len(optimized.Rules) != n || took > 10*time.Second {
			t.Errorf("%s: %d rules of %d are left after %v", name, len(optimized.Rules), n, took)
		}
	}
}

// cpuTime returns the CPU time of the calling thread. Unlike the time of a clock, it does not pass while the machine does other work.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestTooManyAlternatives compiles more rules than the jump offsets of the table instructions can reach.
func TestTooManyAlternatives(t *testing.T) {
	p := &ir.Program{}
	const most = 63 * 64 * 64
	for i := range most + 1 {
		v := uint32(i % 1000)
		p.Rules = append(p.Rules, ir.Rule{Name: "r", Match: []ir.Match{{Field: packet.SPort, Values: []ir.Range{{First: v, Last: v}}}}})
	}
	_, err := xdpgen.Generate(p, xdpgen.Options{})
	if want := "the 258049 rules make 258049 alternatives, too many for the tables"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestDynamicMemory checks dynamic sets that need more memory than is allowed.
func TestDynamicMemory(t *testing.T) {
	for _, c := range []struct{ sets, want string }{
		{"  a: {dynamic: true, max: 64000000}\n", ""},
		{"  a: {dynamic: true, max: 64000001}\n", `p.yaml:3:3: dynamic set "a" has a max of 64000001 entries, ` +
			"but at most 64000000 are possible, which take 4 GB of memory\n  hint: lower max: of the sets"},
		{"  a: {dynamic: true, max: 2147483647}\n  b: {dynamic: true, max: 2147483647}\n",
			`p.yaml:4:3: dynamic sets "a", "b" have together a max of 4294967294 entries, ` +
				"but at most 64000000 are possible, which take 4 GB of memory\n  hint: lower max: of the sets"},
	} {
		_, err := subject.LowerError(t, "p.yaml", "devices: [eth0]\nsets:\n"+c.sets)
		if got := fmt.Sprint(err); got != c.want && !(c.want == "" && err == nil) {
			t.Errorf("%s got %s\nwant %s", c.sets, got, c.want)
		}
	}
}
