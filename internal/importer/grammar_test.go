// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestGrammar generates files with all of the grammar that iptables-restore accepts. Options are in any order, by their
// long names, abbreviated or with =, negated, or after the target. Chains have no line of their own, and are nested ten
// deep. -I is among -A. The extensions are those that files use. The text itself is imported and loaded, not the output of
// iptables-save for it. If nothing is reported as lost, each packet must have the kernel's verdict. FLOODWALL_LONG
// generates 300 files instead of 5.
func TestGrammar(t *testing.T) {
	files := 5
	if os.Getenv("FLOODWALL_LONG") != "" {
		files = 300
	}
	for i := range files {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			r := rand.New(rand.NewPCG(uint64(i), 26))
			if os.Getenv("FLOODWALL_LONG") != "" {
				r = testutil.Random(t)
			}
			c := &testCase{name: t.Name(), device: []string{"ens3"}, written: true, packets: 1000, archive: &txtar.Archive{Files: []txtar.File{
				{Name: "ipset", Data: []byte("create bad4 hash:net\nadd bad4 198.51.100.64/26\nadd bad4 10.1.2.3\n" +
					"create bad6 hash:net family inet6\nadd bad6 2001:db8:5:8000::/50\n")},
				{Name: "iptables-save", Data: []byte((&grammar{r: r}).file())},
				{Name: "ip6tables-save", Data: []byte((&grammar{r: r, v6: true}).file())},
			}}}
			k := c.newKernel(t)
			k.any = true
			if len(k.result.Lost) == 0 {
				k.compare(t)
			} else {
				t.Logf("not compared: %v", k.result.Lost)
			}
			if t.Failed() {
				for _, f := range c.archive.Files {
					t.Logf("%s:\n%s", f.Name, f.Data)
				}
			}
		})
	}
}

// TestDropsAreAccountedFor generates such files with every extension, whether or not the policy has an equivalent. Each rule that drops must be in
// the policy or in the report. An option that the parser does not know must be reported. `check` must not call any rule of the policy dead.
func TestDropsAreAccountedFor(t *testing.T) {
	files := 150
	if os.Getenv("FLOODWALL_LONG") != "" {
		files = 20_000
	}
	drops, lost := 0, 0
	for i := range files {
		g := &grammar{r: rand.New(rand.NewPCG(uint64(i), 24)), v6: i%2 == 1, lossy: true}
		text := g.file()
		format := importer.Iptables
		if g.v6 {
			format = importer.IP6tables
		}
		r, err := importer.Import(t.Context(), []importer.Source{{Name: "f", Data: []byte(text)}},
			importer.Options{Format: format, Devices: []string{"fw0"}})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		accounted(t, r, text)
		drops += r.Drops.Input
		lost += r.Drops.Lost
		if n := strings.Count(text, "DROP") + strings.Count(text, "REJECT"); n != r.Drops.Input {
			t.Errorf("%d rules drop, and %d are counted\n%s", n, r.Drops.Input, text)
		}
	}
	t.Logf("%d files, %d rules that drop, %d of them lost", files, drops, lost)
}

// accounted checks that each rule that drops is in the policy or reported, and that no rule of the policy is dead.
func accounted(t *testing.T, r *importer.Result, text string) {
	t.Helper()
	same(t, r)
	d := r.Drops
	if d.Input != d.Policy+d.Lost+d.Aside {
		t.Errorf("drops %+v\n%s", d, text)
	}
	for _, l := range r.Lost {
		if strings.Contains(l.Why, "no rule of the policy says it") {
			t.Errorf("vanished: %v\n%s\n%s", l, text, r.Policy)
		}
	}
	p, err := policy.Parse("policy.yaml", []byte(r.Policy))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Policy)
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Policy)
	}
	if _, notes := compile.Optimize(program); len(notes) > 0 {
		t.Errorf("%v\n%s\n%s", notes, text, r.Policy)
	}
}

// grammar generates files.
type grammar struct {
	r     *rand.Rand
	v6    bool
	lossy bool // it also uses extensions without an equal in the policy
}

func (g *grammar) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func (g *grammar) pick(words ...string) string { return words[g.r.IntN(len(words))] }

// file writes the tables of a file. All chains except the base chain are user chains; up to ten of them lead to each other.
func (g *grammar) file() string {
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "filter"} {
		base := "PREROUTING"
		if table == "filter" {
			base = "INPUT"
		} else if g.oneIn(2) {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", table)
		if !g.oneIn(4) {
			fmt.Fprintf(&b, ":%s %s [0:0]\n", base, g.pick("ACCEPT", "DROP"))
		}
		depth := 2 + g.r.IntN(9)
		for i := range depth {
			fmt.Fprintf(&b, ":c%d - [0:0]\n", i)
		}
		for i := -1; i < depth; i++ {
			name, next := base, i+1
			if i >= 0 {
				name = fmt.Sprintf("c%d", i)
			}
			for range 1 + g.r.IntN(3) {
				command := g.pick("-A ", "-A ", "--append ", "-I ", "[5:300] -A ")
				fmt.Fprintf(&b, "%s%s %s\n", command, name, g.rule(table, next, depth))
			}
			if next < depth {
				fmt.Fprintf(&b, "-A %s %s\n", name, g.rule(table, -next, depth))
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// rule writes groups of words in random order. Only the protocol must come before the options that belong to it. next is
// the first chain that the rule may lead to. If it is negative, the rule always leads to chain -next.
func (g *grammar) rule(table string, next, depth int) string {
	var groups []string
	kind := g.r.IntN(8)
	for _, k := range []int{kind, kind + 1 + g.r.IntN(6)} {
		if w := g.match(k); w != "" {
			groups = append(groups, w)
		}
	}
	if table != "raw" && g.oneIn(5) {
		groups = append(groups, g.pick("-m state ", "--match state ")+g.pick("", "! ")+"--state "+g.pick("NEW", "ESTABLISHED,RELATED", "INVALID"))
	}
	if g.oneIn(4) {
		groups = append(groups, `-m comment --comment "it's a -j \"DR0P\""`)
	}
	if g.lossy && g.oneIn(3) {
		groups = append(groups, g.foreign())
	}
	groups = append(groups, g.target(table, next, depth))
	g.r.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	if proto := g.protocol(); proto != nil {
		at := g.r.IntN(len(groups) + 1)
		groups = append(groups[:at:at], append([]string{proto[0]}, groups[at:]...)...)
		if len(proto) > 1 { // after the protocol
			at += 1 + g.r.IntN(len(groups)-at)
			groups = append(groups[:at:at], append([]string{proto[1]}, groups[at:]...)...)
		}
	}
	return strings.Join(groups, " ")
}

func (g *grammar) target(table string, next, depth int) string {
	j := g.pick("-j ", "--jump ", "--ju ")
	switch {
	case next < 0:
		return g.pick("-j ", "-j ", "--goto ", "-g ") + fmt.Sprintf("c%d", -next)
	case next < depth && g.oneIn(4):
		return g.pick("-j ", "-g ", "--goto ") + fmt.Sprintf("c%d", next+g.r.IntN(depth-next))
	case g.oneIn(8):
		return j + `LOG --log-prefix "no! -j x " --log-level 4`
	case table == "filter" && g.oneIn(4):
		return j + "REJECT"
	}
	return j + g.pick("ACCEPT", "ACCEPT", "DROP", "DROP", "RETURN")
}

// match writes a match of a kind, or none. A rule has at most one match of each kind.
func (g *grammar) match(kind int) string {
	not := g.pick("", "", "! ")
	nets := []string{"198.51.100.0/24", "198.51.100.128/25", "203.0.113.7", "10.0.0.0/255.0.0.0"}
	own, span, hops, set := "192.0.2.1", "198.51.100.20-198.51.100.220", "-m ttl --ttl-", "bad4"
	if g.v6 {
		nets = []string{"2001:db8:5::/48", "2001:db8:5:8000::/49", "2001:db8:7::7", "fd00::/8"}
		own, span, hops, set = "2001:db8::1", "2001:db8:5::20-2001:db8:5:9000::", "-m hl --hl-", "bad6"
	}
	switch kind {
	case 0, 8:
		return not + g.pick("-s ", "--source ", "--src ") + g.pick(nets...)
	case 1, 9:
		return not + g.pick("-d ", "--destination ", "--dst ") + own
	case 2:
		return "-m iprange " + not + g.pick("--src-range ", "--src-r ") + span
	case 3:
		return hops + g.pick("lt", "gt", "eq") + g.pick(" 5", " 64", "=200")
	case 4:
		return "-m length " + not + "--length " + g.pick("0:100", "60", "101:65535")
	case 5:
		return "-m dscp " + not + g.pick("--dscp 0x2e", "--dscp 0", "--dscp-class AF11")
	case 6:
		return "-m set " + not + "--match-set " + set + " src"
	case 7:
		return "-m addrtype " + not + "--dst-type LOCAL"
	case 10:
		return not + g.pick("-i ens3", "--in-interface ens+", "-i lo")
	}
	return ""
}

// protocol writes a protocol, and sometimes options that belong to it.
func (g *grammar) protocol() []string {
	p, not := g.pick("-p ", "--protocol ", "--proto "), g.pick("", "", "! ")
	icmp, message := "icmp", "-m icmp "+not+"--icmp-type "+g.pick("8", "echo-reply", "3/4", "any")
	if g.v6 {
		icmp, message = "ipv6-icmp", "-m icmp6 "+not+"--icmpv6-type "+g.pick("128", "echo-reply", "1/4")
	}
	switch g.r.IntN(9) {
	case 0, 1:
		return []string{p + "tcp", g.pick("", "-m tcp ") + not + g.pick("--dport ", "--destination-port=", "--dpo ") + g.pick("22", "http", "1000:2000", ":1023")}
	case 2:
		return []string{p + "udp", g.pick("", "--match udp ") + not + g.pick("--sport ", "--source-port ") + g.pick("53", "ntp", "1024:")}
	case 3:
		return []string{p + g.pick("tcp", "udp"), "-m multiport " + not + g.pick("--dports", "--sports", "--ports", "--destination-ports") + " 22,domain,1000:2000"}
	case 4:
		return []string{p + "tcp", not + g.pick("--tcp-flags FIN,SYN,RST,ACK SYN", "--tcp-flags ALL NONE", "--syn", "--tcp-flags SYN,ACK ACK")}
	case 5:
		return []string{p + icmp, message}
	case 6:
		return []string{not + "--protocol " + g.pick("tcp", "udp", "47")}
	}
	return nil
}

// foreign writes a match without an equal, or a match that counts packets.
func (g *grammar) foreign() string {
	return g.pick("-m mac --mac-source 02:00:00:00:00:01", "-m pkttype --pkt-type unicast", "-m statistic --mode random --probability 0.5",
		"-m u32 --u32 0>>22&0x3C@4>>16=0:0xFFFF", "-m connlimit --connlimit-above 5 --connlimit-mask 32", "-m physdev --physdev-is-bridged",
		`-m string --algo bm --string "-j DR0P" --to 500`, "-m owner --uid-owner 0", "-m recent --name a --rcheck", "-m mark --mark 0x1/0xff",
		"-m mark --mark 0", "-m ecn --ecn-ip-ect 1", "-m time --timestart 01:00 --weekdays Mon", "-m connmark ! --mark 7", "-m helper --helper ftp",
		"-m limit --limit 5/sec", "-m limit --limit-burst 7 --limit 10/minute", "-m hashlimit --hashlimit-above 5/s --hashlimit-name b --hashlimit-mode srcip",
		"-m hashlimit --hashlimit-upto 50/min --hashlimit-burst 9 --hashlimit-name c --hashlimit-mode dstip", "-m frobnicate --with 1 --without",
		"-m conntrack --ctstate NEW --ctorigdstport 22 --ctproto tcp", "-m conntrack --ctdir REPLY", "--frob 7", "-m policy --dir in --pol ipsec")
}
