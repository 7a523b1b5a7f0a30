// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/test/testutil"
)

// randomRulesets is the number of rulesets that TestRandomRules generates.
const randomRulesets = 8

// TestRandomRules generates rulesets whose chains lead to each other in all ways, and compares them as TestKernel
// does.
func TestRandomRules(t *testing.T) {
	for i := range randomRulesets {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			r := testutil.Random(t)
			w := &ruleWriter{r: r}
			c := &testCase{name: t.Name(), device: []string{"ens3"}, archive: &txtar.Archive{Files: []txtar.File{
				{Name: "iptables-save", Data: []byte(w.file(false))}, {Name: "ip6tables-save", Data: []byte(w.file(true))},
			}}}
			k := c.newKernel(t)
			k.any = true
			if len(k.result.Lost) > 0 { // packets reach some rule in too many ways
				t.Logf("not compared: %v", k.result.Lost)
				return
			}
			k.compare(t)
			if t.Failed() {
				for _, f := range c.archive.Files {
					t.Logf("%s:\n%s", f.Name, f.Data)
				}
			}
		})
	}
}

// ruleWriter writes random rules.
type ruleWriter struct {
	r  *rand.Rand
	v6 bool
}

func (w *ruleWriter) oneIn(n int) bool { return w.r.IntN(n) == 0 }

func (w *ruleWriter) pick(words ...string) string { return words[w.r.IntN(len(words))] }

// file writes tables raw, mangle and filter.
func (w *ruleWriter) file(v6 bool) string {
	w.v6 = v6
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "filter"} {
		base := "PREROUTING"
		if table == "filter" {
			base = "INPUT"
		}
		if table != "filter" && w.oneIn(2) {
			continue
		}
		fmt.Fprintf(&b, "*%s\n:%s %s [0:0]\n:a - [0:0]\n:b - [0:0]\n:c - [0:0]\n", table, base, w.pick("ACCEPT", "DROP"))
		below := map[string][]string{base: {"a", "b", "c"}, "a": {"b", "c"}, "b": {"c"}, "c": nil}
		for _, chain := range []string{base, "a", "b", "c"} {
			for range 2 + w.r.IntN(5) {
				fmt.Fprintf(&b, "-A %s %s\n", chain, w.rule(table, below[chain]))
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// rule writes matches and a target.
func (w *ruleWriter) rule(table string, below []string) string {
	var words []string
	kind := w.r.IntN(8)
	words = append(words, w.header(kind), w.header(kind+1+w.r.IntN(4)), w.protocol())
	if table != "raw" && w.oneIn(4) {
		words = append(words, "-m conntrack "+w.pick("", "! ")+"--ctstate "+w.pick("NEW", "ESTABLISHED,RELATED", "INVALID", "NEW,UNTRACKED"))
	}
	target := w.pick("-j ACCEPT", "-j ACCEPT", "-j DROP", "-j DROP", "-j RETURN")
	switch {
	case len(below) > 0 && w.oneIn(2):
		target = w.pick("-j ", "-j ", "-g ") + w.pick(below...)
	case table == "filter" && w.oneIn(4):
		target = "-j REJECT"
	}
	return strings.Join(strings.Fields(strings.Join(append(words, target), " ")), " ")
}

// header writes one match of an address or of another property of the IP header, or none. A rule has at most one
// match of each kind.
func (w *ruleWriter) header(kind int) string {
	not := w.pick("", "", "! ")
	nets := []string{"198.51.100.0/24", "198.51.100.128/25", "203.0.113.7/32", "10.0.0.0/8", "10.1.0.0/16"}
	own := []string{"192.0.2.1/32", "203.0.113.0/24"}
	span, hops := "198.51.100.20-198.51.100.220", "-m ttl --ttl-"
	if w.v6 {
		nets = []string{"2001:db8:5::/48", "2001:db8:5:8000::/49", "2001:db8:7::7/128", "fd00::/8", "fd00:1::/32"}
		own = []string{"2001:db8::1/128", "2001:db8::/32"}
		span, hops = "2001:db8:5::20-2001:db8:5:9000::", "-m hl --hl-"
	}
	switch kind {
	case 0, 6:
		return not + "-s " + w.pick(nets...)
	case 1, 7:
		return not + "-d " + w.pick(own...)
	case 2:
		return "-m iprange " + not + "--src-range " + span
	case 3:
		return hops + w.pick("lt", "gt", "eq") + " " + w.pick("5", "64", "200")
	case 4:
		return "-m length " + not + "--length " + w.pick("0:100", "60", "101:65535")
	}
	return ""
}

// protocol writes a match of the protocol and, mostly, of a field of its header, or none.
func (w *ruleWriter) protocol() string {
	not := w.pick("", "", "! ")
	icmp, number := "-p icmp", "-m icmp "+not+"--icmp-type "+w.pick("8", "3", "3/4", "any")
	if w.v6 {
		icmp, number = "-p ipv6-icmp", "-m icmp6 "+not+"--icmpv6-type "+w.pick("128", "1", "1/4")
	}
	switch w.r.IntN(8) {
	case 0:
		return "-p tcp -m tcp " + not + "--dport " + w.pick("22", "80", "1000:2000", ":1023")
	case 1:
		return "-p udp -m udp " + not + "--sport " + w.pick("53", "123", "1024:")
	case 2:
		return w.pick("-p tcp", "-p udp") + " -m multiport " + not + w.pick("--dports", "--sports", "--ports") + " 22,53,1000:2000"
	case 3:
		return "-p tcp -m tcp " + not + "--tcp-flags " + w.pick("FIN,SYN,RST,ACK SYN", "ALL NONE", "SYN,ACK ACK", "RST RST")
	case 4:
		return icmp + " " + number
	case 5:
		return not + "-p " + w.pick("tcp", "udp", "47")
	}
	return ""
}
