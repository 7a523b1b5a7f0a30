// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// packetsPerCase returns the number of packets that are sent for each ruleset.
func packetsPerCase() int { return testutil.Scaled(1500, 4000) }

// TestKernel loads each archive's rules with their own tools, saves them with these tools, and imports the output. It then
// compares the policy's verdicts on packets with those of the kernel's rules.
func TestKernel(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			c.newKernel(t).compare(t)
		})
	}
}

// newKernel imports the rules as the tools print them, and prepares the host on which they will run.
func (c *testCase) newKernel(t *testing.T) *kernel {
	t.Helper()
	sources, format := c.sources()
	if !c.written {
		sources, format = c.saved(t)
	}
	if c.packets == 0 {
		c.packets = packetsPerCase()
	}
	k := &kernel{testCase: c, result: c.imports(t, sources, format)}
	k.program = lower(t, k.result)
	k.judge = testutil.NewJudge(t, c.dev(), "wire0", true, "192.0.2.1/24", "2001:db8::1/64", "203.0.113.1/24")
	run(t, witnesses(c.dev()), "nft", "-f", "-")
	run(t, "", "ip", "-6", "route", "replace", "default", "dev", c.dev()) // a return route, for rules that test whether there is one
	return k
}

// dev returns the device through which packets come in.
func (c *testCase) dev() string {
	if len(c.device) > 0 {
		return c.device[0]
	}
	return "ens3"
}

// loader returns the command that loads an input, and the command that prints it again.
func (c *testCase) loader(input string) (load, save []string) {
	variant := func(tool string) string {
		if c.legacy {
			return strings.Replace(tool, "tables-", "tables-legacy-", 1)
		}
		return tool
	}
	switch input {
	case "ipset":
		return []string{"ipset", "restore"}, []string{"ipset", "save"}
	case "nft":
		return []string{"nft", "-f", "-"}, []string{"nft", "list", "ruleset"}
	}
	restore := strings.Replace(input, "-save", "-restore", 1)
	return []string{variant(restore)}, []string{variant(input)}
}

// saved returns the inputs as the tools print them after they have loaded them in a network namespace, which is then removed.
func (c *testCase) saved(t *testing.T) (list []importer.Source, format importer.Format) {
	t.Helper()
	sources, format := c.sources()
	var script strings.Builder
	dir := t.TempDir()
	for _, s := range sources {
		load, _ := c.loader(s.Name)
		testutil.RequireTool(t, load[0])
		file := dir + "/" + s.Name
		writeFile(t, file, s.Data)
		fmt.Fprintf(&script, "%s < %s\n", strings.Join(load, " "), file)
	}
	for _, s := range sources {
		_, save := c.loader(s.Name)
		fmt.Fprintf(&script, "%s > %s/%s.saved\n", strings.Join(save, " "), dir, s.Name)
	}
	cmd := exec.Command("sh", "-e", "-c", script.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script.String(), err, out)
	}
	for _, s := range sources {
		list = append(list, importer.Source{Name: s.Name, Data: readFile(t, dir+"/"+s.Name+".saved")})
	}
	return list, format
}

// load loads the inputs in the namespace of the test.
func (c *testCase) load(t *testing.T) {
	t.Helper()
	sources, _ := c.sources()
	for _, s := range sources {
		load, _ := c.loader(s.Name)
		run(t, string(s.Data), load...)
	}
}

func run(t *testing.T, stdin string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// witnesses returns rules that log, in the judge's format, the state after conntrack, and the packets that have passed all rules
// of input or forward.
func witnesses(device string) string {
	var b strings.Builder
	b.WriteString("table inet witness {\n\tchain state {\n\t\ttype filter hook prerouting priority -199;\n")
	for _, s := range []string{"new", "established", "related", "invalid", "untracked"} {
		fmt.Fprintf(&b, "\t\tiifname %s ct state %s log prefix \"state %s\" group 77\n", device, s, s)
	}
	b.WriteString("\t}\n")
	for _, hook := range []string{"input", "forward"} {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook %s priority 3000;\n", hook, hook)
		fmt.Fprintf(&b, "\t\tiifname %s log prefix \"before end-%s\" group 77\n\t}\n", device, hook)
	}
	return b.String() + "}\n"
}

// kernel is a ruleset under test.
type kernel struct {
	*testCase
	result  *importer.Result
	program *ir.Program
	judge   *testutil.Judge
	any     bool // a correct run may drop all packets, or none
}

// probe is a packet that is sent.
type probe struct {
	spec  packet.Spec
	frame []byte
}

// compare sends packets first without rules, to find those that reach the end of input or forward, and then again with the
// rules.
func (k *kernel) compare(t *testing.T) {
	probes := k.probes(t)
	frames := make([][]byte, len(probes))
	for i, p := range probes {
		frames[i] = p.frame
	}
	without := k.fates(t, frames)
	k.load(t)
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil { // a connection stays translated in the way in which it began
		t.Fatal(err)
	}
	with := k.fates(t, frames)
	members := k.members(t)
	compared, dropped, differ := 0, 0, 0
	states := map[string]int{}
	for i, p := range probes {
		hook := ends(without[i])
		if hook == "" || hook == "end-forward" && !k.router ||
			k.connected && (with[i].State == "invalid" || p.spec.Packet().Value[packet.TTL] < 2) {
			continue
		}
		pkt := p.spec.Packet()
		state := stateNumber(with[i].State)
		pkt.Value[packet.State] = state
		verdict, reason := k.program.Eval(&pkt, ir.World{Member: members})
		passed := ends(with[i]) != ""
		compared++
		states[with[i].State]++
		if !passed {
			dropped++
		}
		if passed == (verdict == ir.Pass) || k.exempt(p.spec) || k.lax && hook == "end-forward" && verdict == ir.Pass ||
			passed && k.structural(k.program.ReasonName(reason)) {
			continue
		}
		if differ++; differ <= 10 {
			t.Errorf("%s state=%s at %s: passed %v, but the policy says %s (%s)\nframe %s", p.spec, with[i].State, hook, passed,
				verdict, k.program.ReasonName(reason), hex.EncodeToString(p.frame))
		}
	}
	t.Logf("%d packets compared, %d dropped, states %v, %d differ", compared, dropped, states, differ)
	if differ > 0 {
		t.Logf("policy:\n%s", k.result.Policy)
	}
	if compared < k.packets/4 || !k.any && (dropped == 0 || dropped == compared) {
		t.Errorf("%d packets compared, %d dropped: the packets do not meet the rules", compared, dropped)
	}
}

// fates asks the judge in parts that fit into the buffer of the log.
func (k *kernel) fates(t *testing.T, frames [][]byte) (all []testutil.Fate) {
	t.Helper()
	for part := range slices.Chunk(frames, 500) {
		fates, err := k.judge.Fates(part)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fates...)
	}
	return all
}

// ends returns the hook at whose end a packet was seen, or "".
func ends(f testutil.Fate) string {
	for _, name := range f.Seen {
		if strings.HasPrefix(name, "end-") {
			return name
		}
	}
	return ""
}

func stateNumber(name string) uint32 {
	return map[string]uint32{
		"established": packet.StateEstablished, "related": packet.StateRelated, "invalid": packet.StateInvalid,
		"untracked": packet.StateUntracked,
	}[name]
}

// structural reports whether a reason is a check that the policy's rules depend on. The original rules have no such checks, and
// the importer reports the checks that the policy adds.
func (k *kernel) structural(reason string) bool {
	return slices.ContainsFunc(k.program.Structural(), func(s ir.Structural) bool { return s.Check.String() == reason })
}

// exempt reports whether rules without an equal decide about a packet.
func (k *kernel) exempt(s packet.Spec) bool {
	port := "none"
	switch v := s.Packet().Value[packet.DPort]; {
	case v < packet.PortUDP:
		port = fmt.Sprintf("tcp/%d", v)
	case v < packet.PortNone:
		port = fmt.Sprintf("udp/%d", v-packet.PortUDP)
	}
	return slices.ContainsFunc(k.except, func(e string) bool {
		return e == port || strings.HasPrefix(e, "rh") && strings.Contains(s.String(), e)
	})
}

// members returns a function for lookups in the dynamic sets: those of the host's own addresses, and those of the list files.
func (k *kernel) members(t *testing.T) func(int, netip.Addr) bool {
	t.Helper()
	sets := make([]*netipx.IPSet, len(k.program.Sets))
	for i, s := range k.program.Sets {
		var b netipx.IPSetBuilder
		switch {
		case s.Dynamic == nil:
		case s.Dynamic.Local:
			for _, a := range append([]string{"::1"}, ownAddresses...) {
				b.Add(netip.MustParseAddr(a))
			}
			b.AddPrefix(netip.MustParsePrefix("127.0.0.0/8"))
		default:
			for _, l := range k.result.Lists {
				if l.Name == s.Name+".txt" {
					addList(t, &b, string(l.Data))
				}
			}
		}
		sets[i], _ = b.IPSet()
	}
	return func(i int, a netip.Addr) bool { return sets[i].Contains(a) }
}

func addList(t *testing.T, b *netipx.IPSetBuilder, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		word := strings.Fields(line)[0]
		if p, err := netip.ParsePrefix(word); err == nil {
			b.AddPrefix(p)
		} else if a, err := netip.ParseAddr(word); err == nil {
			b.Add(a)
		} else if r, err := netipx.ParseIPRange(word); err == nil {
			b.AddRange(r)
		} else {
			t.Fatalf("list line %q", line)
		}
	}
}

var (
	addressLike = regexp.MustCompile(`[0-9a-fA-F:.]*[.:][0-9a-fA-F:.]+(?:/\d+)?`)
	numberLike  = regexp.MustCompile(`\b\d{1,5}\b`)
)

// hints returns the addresses and numbers in the rules' text, whether or not the importer understands them.
func (k *kernel) hints() (h packet.Hints) {
	sources, _ := k.sources()
	for _, s := range sources {
		for _, w := range addressLike.FindAllString(string(s.Data), -1) {
			if p, err := netip.ParsePrefix(w); err == nil {
				h.Addrs = append(h.Addrs, p.Masked())
			} else if a, err := netip.ParseAddr(w); err == nil {
				h.Addrs = append(h.Addrs, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		for _, w := range numberLike.FindAllString(string(s.Data), -1) {
			n, _ := strconv.ParseUint(w, 10, 16)
			h.Values[packet.DPort] = append(h.Values[packet.DPort], uint32(n), packet.PortUDP+uint32(n))
			if n < 256 {
				h.Values[packet.ICMP] = append(h.Values[packet.ICMP], uint32(n)<<8, packet.ICMPv6+uint32(n)<<8)
			}
		}
	}
	for _, r := range k.program.Rules {
		for _, p := range r.Payload {
			for _, a := range p.At {
				h.Texts = append(h.Texts, a.Value)
			}
			for _, text := range p.Any {
				h.Texts = append(h.Texts, text.Text)
			}
		}
		for _, m := range r.Match {
			if m.Field >= packet.NumFields || m.Field == packet.Fragment {
				continue
			}
			for _, v := range m.Values[:min(20, len(m.Values))] {
				h.Values[m.Field] = append(h.Values[m.Field], v.First, v.Last)
			}
		}
	}
	for range 1 + len(h.Addrs)/4 {
		for _, a := range slices.Concat(ownAddresses, ownAddresses[2:]) {
			own := netip.MustParseAddr(a)
			h.Addrs = append(h.Addrs, netip.PrefixFrom(own, own.BitLen()))
		}
	}
	return h
}

// probes generates packets that a host accepts. They are whole, have no VLAN tag, and come from other hosts. Their destination
// is one of the host's addresses or, on a router, any address.
func (k *kernel) probes(t *testing.T) (list []probe) {
	r, h := testutil.Random(t), k.hints()
	for tries := 0; len(list) < k.packets && tries < k.packets*50; tries++ {
		s := packet.RandomSpec(r, h)
		p := s.Packet()
		switch {
		case p.Kind != packet.IP || p.Value[packet.VLAN] != packet.VLANNone:
		case p.Failed.Has(packet.ExtHeaders): // Floodwall reads at most six
		case strings.Contains(s.String(), "frag"): // the kernel reassembles fragments before rules see them
		case ahHeader.MatchString(s.String()): // iptables and nft do not look after an AH header, but Floodwall does
		case p.Dst.Is4() && p.Dst.As4()[3] == 255 && p.Dst.As4()[0] != 255: // may be a broadcast address of one of the host's networks
		case slices.Contains(anycast, p.Dst.String()) || isOwn(p.Src) || p.Dst.IsUnspecified() || !isOwn(p.Dst) && !p.Dst.IsMulticast() && !k.router:
		default:
			if frame := s.Frame(); len(frame) < 1500 {
				list = append(list, probe{s, frame})
			}
		}
	}
	return list
}

var ahHeader = regexp.MustCompile(`ext=[a-z0-9,]*\bah\b`)

var ownAddresses = []string{"192.0.2.1", "203.0.113.1", "2001:db8::1"}

// anycast are the subnet-router anycast addresses of the host's networks. The host itself is such a router.
var anycast = []string{"2001:db8::", "fe80::"}

func isOwn(a netip.Addr) bool {
	return slices.Contains(slices.Concat(ownAddresses, anycast), a.String())
}
