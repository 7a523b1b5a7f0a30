// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// ToIptables compiles a program for the iptables target and the device eth0.
func ToIptables(p *ir.Program) (*iptables.Ruleset, error) {
	plan, err := plan.Hoist(p, plan.TargetIptables)
	if err != nil {
		return nil, err
	}
	return iptables.Generate(plan, iptables.Options{Devices: []string{"eth0"}})
}

// Feed runs a tool with input and returns its output. It fails the test if the tool fails.
func Feed(t *testing.T, s *Subject, input, tool string, args ...string) string {
	t.Helper()
	cmd := exec.Command(tool, args...)
	cmd.Stdin = strings.NewReader(input)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s\ninput:\n%s\npolicy:\n%s", tool, args, err, complaints.String(), input, Shortened(s.Policy))
	}
	return string(out)
}

// IptWire is a Wire to a device eth0 that has IPv6. Backend is the implementation of iptables: legacy or nft.
type IptWire struct {
	*Wire
	Backend string
}

// iptLocal are the addresses of a host with an IptWire. The broadcast address of lo is not included.
const iptLocal = "127.0.0.0/9 198.51.100.1/32 2606::99/128 ::1/128"

// NewIptWire makes an IptWire in the network namespace of the test (see testutil.Inside).
func NewIptWire(t *testing.T) *IptWire {
	w := &IptWire{Wire: NewWire(t)}
	for _, s := range []struct{ name, value string }{
		{"lo/disable_ipv6", "0"}, {"eth0/addr_gen_mode", "1"}, {"eth0/accept_dad", "0"}, {"eth0/disable_ipv6", "0"},
	} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+s.name, []byte(s.value), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"addr add 198.51.100.1/24 dev eth0", "addr add 2606::99/64 dev eth0 nodad", "link set eth0 arp off",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	// The kernel adds the route of an IPv6 address in a worker, and `addrtype` needs this route
	// (https://elixir.bootlin.com/linux/v6.12/source/net/ipv6/addrconf.c, addrconf_dad_work).
	for range 3000 {
		routes, err := netlink.RouteGet(net.ParseIP("2606::99"))
		if err == nil && routes[0].Type == unix.RTN_LOCAL {
			return w
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("2606::99 does not become an address of this host")
	return nil
}

// Restore loads a ruleset with ipset restore and iptables-restore. It adds jumps from the hooks to the chains of the ruleset.
func (w *IptWire) Restore(t *testing.T, s *Subject, x *iptables.Ruleset) {
	t.Helper()
	if s.HasLocal() {
		s.Insert(t, "local", iptLocal)
	}
	Feed(t, s, x.IPSet+added(s, x), "ipset", "restore")
	for i, family := range []string{"iptables-", "ip6tables-"} {
		text := []string{x.V4, x.V6}[i]
		for _, h := range x.Hooks {
			text = strings.Replace(text, "COMMIT", fmt.Sprintf("-A %s %s\nCOMMIT", h.Chain, h), 1)
		}
		Feed(t, s, text, family+w.Backend+"-restore")
	}
}

// Remove removes the rules and sets that Restore has loaded.
func (w *IptWire) Remove(t *testing.T, s *Subject) {
	t.Helper()
	for _, family := range []string{"iptables-", "ip6tables-"} {
		Feed(t, s, "*raw\nCOMMIT\n", family+w.Backend+"-restore")
	}
	Feed(t, s, "", "ipset", "destroy")
}

// added returns the ipset commands that fill the dynamic sets.
func added(s *Subject, x *iptables.Ruleset) (commands string) {
	for i, set := range x.Sets {
		for _, p := range s.Members[i] {
			name, entries := set.Entries(p)
			for _, e := range entries {
				if name != "" {
					commands += fmt.Sprintf("add -exist %s %s\n", name, e)
				}
			}
		}
	}
	return commands
}

var countedLine = regexp.MustCompile(`(?m)^\[([1-9]\d*):\d+\] .* --comment "?([^ "\n]+)`)

// Counts returns the packet counters of all rules that have a comment, by comment. It waits until the sum of the counters is awaited, or until they
// no longer change.
func (w *IptWire) Counts(t *testing.T, s *Subject, awaited int) map[string]int {
	t.Helper()
	for tries, last := 0, 0; ; tries++ {
		counts, sum := map[string]int{}, 0
		for _, family := range []string{"iptables-", "ip6tables-"} {
			for _, m := range countedLine.FindAllStringSubmatch(Feed(t, s, "", family+w.Backend+"-save", "-c", "-t", "raw"), -1) {
				n, _ := strconv.Atoi(m[1])
				counts[m[2]] += n
				sum += n
			}
		}
		if sum == awaited || tries == 50 {
			return counts
		}
		if sum != last {
			last, tries = sum, 0
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// iptText returns the output of the iptables target for a program. The checks that the target does not apply come first.
func iptText(p *ir.Program) (string, error) {
	x, err := ToIptables(p)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, l := range x.Left {
		b.WriteString("# left: " + l.Check.String() + "\n")
	}
	return b.String() + x.Script(), nil
}
