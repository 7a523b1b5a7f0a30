// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Writer writes random policies. Their addresses are a few random prefixes, and prefixes and addresses within these. So the sets nest, overlap and
// adjoin.
type Writer struct {
	*rand.Rand
	bases []netip.Prefix
	sets  []string // names, including those of dynamic sets

	Stateful bool // the policy may use connection states, reject packets, and track services
	Tracking bool // the test knows the open connections, so the policy may limit their number and may have untracked packets
	counting bool // rules may count connections, so no service is untracked
	none     bool // the policy has `untracked: all`
	Payload  bool // the policy may test the payload, and have rules that only observe
	Full     bool // the policy may use all features of XDP: limits, protections, tests of DNS, answers and samples
}

// RandomPolicy writes a policy that XDP can apply without other stages.
func RandomPolicy(t testing.TB, r *rand.Rand, rules int) (text string, dynamic []string, w *Writer) {
	w = &Writer{Rand: r}
	text, dynamic = w.Policy(t, rules)
	return text, dynamic, w
}

// Policy writes a policy with the given number of rules. It returns the policy and the names of its dynamic sets. If Parse refuses a rule because it
// contradicts itself, the rule becomes a comment.
func (w *Writer) Policy(t testing.TB, rules int) (text string, dynamic []string) {
	for range 2 + w.IntN(6) {
		w.bases = append(w.bases, w.base())
	}
	w.counting = w.Tracking && !w.OneIn(3)
	head := w.head(&dynamic)
	var lines []string
	for i := range rules {
		lines = append(lines, w.rule(i, rules))
	}
	services := strings.SplitAfter(w.services(), "\n")
	lines, services = append(lines, services[0]), services[1:]
	for _, s := range services {
		if s != "" {
			lines = append(lines, s)
		}
	}
	tail := Choose(w, "", "", "essential: {echo: on}\n", "essential: {fragments: off}\n")
	if w.Full && w.OneIn(2) {
		lines, tail = append(lines, w.essential()), ""
	}
	text = head + strings.Join(lines, "") + tail
	for bad := w.contradicting(t, text); len(bad) > 0; bad = w.contradicting(t, text) {
		for _, line := range bad {
			if at := line - strings.Count(head, "\n") - 1; at < 0 || at >= len(lines) {
				t.Fatalf("line %d is refused:\n%s", line, text)
			}
			lines[line-strings.Count(head, "\n")-1] = "  # a contradiction\n"
		}
		text = head + strings.Join(lines, "") + tail
	}
	return text, dynamic
}

// contradicting returns the line numbers of the rules that Parse refuses because no packet can match them. For full policies it returns the line
// numbers of all errors of Parse.
func (w *Writer) contradicting(t testing.TB, text string) (lines []int) {
	_, err := policy.Parse("policy.yaml", []byte(text))
	var all policy.Errors
	if err != nil && !errors.As(err, &all) {
		t.Fatal(err)
	}
	for _, e := range all {
		if !w.Full && !strings.Contains(e.Msg, "never matches") {
			t.Fatalf("%v\n%s", err, text)
		}
		lines = append(lines, e.Line)
	}
	return slices.Compact(lines)
}

// OneIn returns true with a probability of 1/n.
func (w *Writer) OneIn(n int) bool { return w.IntN(n) == 0 }

// Choose returns a random element of a list.
func Choose[T any](w *Writer, list ...T) T { return list[w.IntN(len(list))] }

// base returns a random prefix of any length.
func (w *Writer) base() netip.Prefix {
	if w.OneIn(12) {
		return netip.MustParsePrefix(Choose(w, "0.0.0.0/0", "::/0", "127.0.0.0/8", "ff00::/8", "255.255.255.255/32", "::/128"))
	}
	bytes := make([]byte, Choose(w, 4, 4, 16))
	for i := range bytes {
		bytes[i] = byte(w.Uint32())
	}
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(a, 1+w.IntN(a.BitLen())).Masked()
}

// Prefix returns one of the bases, or a random prefix or address within one.
func (w *Writer) Prefix() netip.Prefix {
	p := Choose(w, w.bases...)
	if w.OneIn(5) {
		return p
	}
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		if w.OneIn(2) {
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(a, p.Bits()+w.IntN(a.BitLen()-p.Bits()+1)).Masked()
}

// addresses writes an entry of a set, in quotes.
func (w *Writer) addresses() string {
	p := w.Prefix()
	switch w.IntN(4) {
	case 0:
		return fmt.Sprintf("%q", p.Addr())
	case 1:
		q := w.Prefix().Addr()
		if p.Addr().Is4() != q.Is4() {
			break
		}
		first, last := p.Addr(), q
		if last.Less(first) {
			first, last = last, first
		}
		return fmt.Sprintf("\"%s-%s\"", first, last)
	}
	return fmt.Sprintf("%q", p)
}

// list writes a list of one to n values.
func (w *Writer) list(n int, one func() string) string {
	var words []string
	for range 1 + w.IntN(n) {
		words = append(words, one())
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// head writes the part of the policy before the rules, up to the line "rules:".
func (w *Writer) head(dynamic *[]string) string {
	b := fmt.Sprintf("devices: [eth0]\ndefault: %s\nreplies: %s\nchecks: %s\nsets:\n", Choose(w, "pass", "drop"), Choose(w, "pass", "drop"), w.checks())
	for i := range w.IntN(8) {
		name := fmt.Sprintf("s%d", i)
		w.sets = append(w.sets, "$"+name)
		if w.OneIn(4) && len(*dynamic) < 4 {
			*dynamic = append(*dynamic, name)
			b += fmt.Sprintf("  %s: {dynamic: true, max: %d}\n", name, 16+w.IntN(1000))
			continue
		}
		b += fmt.Sprintf("  %s: %s\n", name, w.list(1+w.IntN(12), w.addresses))
	}
	return b + w.untracked() + "rules:\n"
}

// untracked writes the key untracked, which selects the packets that conntrack ignores. The key changes no verdict in these tests, because each
// packet of a test has its state with it.
func (w *Writer) untracked() string {
	if w.Full && w.OneIn(8) {
		return fmt.Sprintf("untracked: {sport: %s, family: ipv4}\n", w.port())
	}
	if !w.Tracking || w.OneIn(3) {
		return ""
	}
	if !w.counting && w.OneIn(4) {
		w.none = true
		return "untracked: all\n"
	}
	return "untracked: " + w.list(3, func() string {
		return Choose(w, "loopback", "multicast", "broadcast", fmt.Sprintf("{from: %s}", w.addresses()), fmt.Sprintf("{to: %s, proto: gre}", w.addresses()),
			fmt.Sprintf("{port: %s}", w.port()))
	}) + "\n"
}

// connections writes a limit on the number of connections: for each source prefix, each destination prefix, or each pair of both.
func (w *Writer) connections() string {
	per := Choose(w, "from", "from/24", "to", "[from, to]", "[from/16, to/24]")
	return fmt.Sprintf("over: {connections: %d, per: %s}, ", 1+w.IntN(2), per)
}

func (w *Writer) checks() string {
	profile := Choose(w, "off", "off", "standard", "strict")
	text := "{profile: " + profile
	for check := range packet.NumChecks {
		if w.OneIn(8) {
			set := Choose(w, "on", "off")
			if w.Full && w.OneIn(4) {
				set = "observe"
			}
			text += fmt.Sprintf(", %s: %s", check, set)
		}
	}
	return text + "}"
}

// rule writes rule number i as one line. If the policy has many rules, each rule has more conditions. Otherwise the first few rules would decide
// about all packets.
func (w *Writer) rule(i, of int) string {
	b := "  - {"
	if w.OneIn(2) {
		b += fmt.Sprintf("name: r%d, ", i)
	}
	least := 0
	if of > 20 {
		least = 1
	}
	b += w.keys(least)
	not := ""
	if w.OneIn(5) {
		not = w.keys(1)
	}
	then := Choose(w, "pass", "drop", "drop")
	if w.Stateful && w.OneIn(4) {
		then = "reject"
	}
	if w.counting && then != "pass" && w.OneIn(2) && !strings.Contains(b+not, "state: ") {
		b += w.connections()
	}
	if w.Full {
		var keys string
		keys, then = w.full(b + not)
		b += keys
		if not == "" && w.OneIn(10) {
			not = "dns: " + w.dns() + ", "
		}
	}
	if w.Payload {
		is, isNot := w.payloads(strings.Contains(b, "proto: "))
		b, not = b+is, not+isNot
		if w.OneIn(8) && !w.Full {
			then += ", observe: true"
		}
	}
	if not != "" {
		b += "not: {" + strings.TrimSuffix(not, ", ") + "}, "
	}
	return b + "then: " + then + "}\n"
}

// payloads writes a rule's tests of the payload, or nothing. The result b is for the rule, and the result not is for the key not of the rule. Most
// searches for a text are limited to UDP, because not all targets support other protocols.
func (w *Writer) payloads(proto bool) (b, not string) {
	if w.OneIn(2) {
		return "", ""
	}
	key := "payload: {at: " + w.list(2, w.place) + "}, "
	if w.OneIn(2) {
		if !proto && !w.OneIn(8) {
			b = "proto: udp, "
		}
		text := func() string { return fmt.Sprintf("%q", Choose(w, texts...)) }
		key = fmt.Sprintf("payload: {contains: %s, nocase: %t, within: %d}, ", w.list(3, text), w.OneIn(2), Choose(w, 8, 20, 40, 1024))
		if w.OneIn(3) {
			key = strings.Replace(key, "}", ", at: "+w.place()+"}", 1)
		}
	}
	if w.OneIn(3) {
		return b, key
	}
	return b + key, ""
}

// texts are texts that are frequent in the payload of random packets.
var texts = []string{"evil", "ab", "|00 01|", "Evil.Ex", "x", "B|ff|"}

// place writes a test of bytes at an offset. It usually compares so few bits that every second or fourth payload matches.
func (w *Writer) place() string {
	var bytes, masks []string
	for i := range 1 + w.IntN(Choose(w, 2, 6, 16)) {
		mask := byte(0)
		if i == 0 || w.OneIn(8) {
			mask = Choose[byte](w, 0x01, 0x80, 0x03, 0xff)
		}
		bytes, masks = append(bytes, fmt.Sprintf("%02x", byte(w.Uint32())&mask)), append(masks, fmt.Sprintf("%02x", mask))
	}
	return fmt.Sprintf(`{offset: %d, bytes: "|%s|", mask: "|%s|", from: %s}`, Choose(w, 0, 0, 1, 2, 3, 7, w.IntN(40)),
		strings.Join(bytes, " "), strings.Join(masks, " "), Choose(w, "payload", "header"))
}

// keys writes at least least randomly selected keys with values. A comma follows each.
func (w *Writer) keys(least int) string {
	all := []struct {
		key string
		one func() string
	}{
		{"from", w.address}, {"to", w.address}, {"proto", w.Proto}, {"port", w.port}, {"sport", w.port},
		{"family", func() string { return Choose(w, "ipv4", "ipv6") }},
		{"flags", w.flags}, {"icmp", w.icmp},
		{"length", func() string { return w.span(60, 100, 1500) }},
		{"ttl", func() string { return w.span(2, 64, 255) }},
		{"dscp", func() string { return w.span(1, 46, 63) }},
		{"mss", func() string { return Choose(w, "none", w.span(536, 1460, 65535)) }},
		{"fragment", func() string { return Choose(w, "none", "first", "later") }},
		{"vlan", func() string { return Choose(w, "none", w.span(1, 10, 4094)) }},
	}
	b, n := "", 0
	if w.Stateful && w.OneIn(2) {
		b, n = fmt.Sprintf("state: %s, ", w.list(3, w.state)), 1
	}
	for _, k := range w.Perm(len(all)) {
		usual := k < 4
		if n < least || usual && w.OneIn(3) || w.OneIn(14) {
			b += fmt.Sprintf("%s: %s, ", all[k].key, w.list(3, all[k].one))
			n++
		}
	}
	return b
}

func (w *Writer) address() string {
	switch {
	case len(w.sets) > 0 && w.OneIn(2):
		return Choose(w, w.sets...)
	case w.OneIn(12):
		return "local"
	}
	return w.addresses()
}

// Proto draws a protocol.
func (w *Writer) Proto() string {
	return Choose(w, "tcp", "udp", "icmp", "icmpv6", "gre", "0", "44", "51", "255")
}

func (w *Writer) port() string {
	n := w.span(Choose(w, 53, 80, 443, 1024, w.IntN(65536)), 9, 65535)
	return Choose(w, "tcp/", "udp/", "") + n
}

// span writes a number near a or b, or a range of numbers. No number exceeds most. Numbers that differ by one or two are frequent.
func (w *Writer) span(a, b, most int) string {
	first := Choose(w, 0, a, b, a+1, a+2, b+2, most, w.IntN(most+1))
	first = min(first, most)
	if w.OneIn(2) {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, first+w.IntN(most-first+1))
}

func (w *Writer) flags() string {
	return Choose(w, "syn", "none", `"syn/fin,syn,rst,ack"`, "ack", `"syn,ack/syn,ack,rst"`, `"fin,urg,psh"`, `"0/syn,fin"`)
}

func (w *Writer) icmp() string {
	return Choose(w, "echo-request", "destination-unreachable", "icmp/3/4", "icmpv6/2", "nd-neighbor-solicit", "icmp/5/1",
		fmt.Sprintf("icmp/%d", w.IntN(256)), fmt.Sprintf("icmpv6/%d/%d", w.IntN(256), w.IntN(3)))
}

func (w *Writer) state() string {
	return Choose(w, "new", "established", "related", "invalid", "untracked")
}

// services writes a few services. All have the same value of the key track, because services on the same port must.
func (w *Writer) services() string {
	b, track := "services:\n", ""
	if w.Stateful {
		track = Choose(w, "", ", track: true", ", track: false")
		if w.none && track == ", track: true" || w.counting && track == ", track: false" {
			track = ""
		}
	}
	for i := range w.IntN(4) {
		b += fmt.Sprintf("  - {name: v%d, port: %s", i, w.list(3, w.port))
		if w.OneIn(2) {
			b += ", from: " + w.list(2, w.address)
		}
		if w.OneIn(2) {
			b += track
		}
		b += "}\n"
	}
	if w.Full {
		b += w.protections()
	}
	return b
}

// Members writes random content for a dynamic set. It uses few prefix lengths, because a set has space for eight lengths of each address family.
func (w *Writer) Members() string {
	lengths := map[bool][]int{}
	for range 4 {
		lengths[true] = append(lengths[true], w.IntN(33))
		lengths[false] = append(lengths[false], w.IntN(129))
	}
	var b strings.Builder
	for range w.IntN(12) {
		a := w.Prefix().Addr()
		p := netip.PrefixFrom(a, Choose(w, lengths[a.Is4()]...)).Masked()
		if p.Bits() > 2 || w.OneIn(20) {
			b.WriteString(p.String() + " ")
		}
	}
	return b.String()
}

// RuleHints returns the values that each rule tests. The last element has the values of all rules. A packet that is drawn with the hints of a rule
// probably matches the rule.
func RuleHints(s *Subject, w *Writer) []packet.Hints {
	all := packet.Hints{Addrs: w.bases}
	if w.Payload {
		for _, text := range texts {
			all.Texts = append(all.Texts, []byte(text))
		}
	}
	var out []packet.Hints
	for i := range s.Program.Rules {
		h := s.hints(&s.Program.Rules[i])
		out = append(out, h)
		all.Addrs, all.Texts = append(all.Addrs, h.Addrs...), append(all.Texts, h.Texts...)
		for f := range h.Values {
			all.Values[f] = append(all.Values[f], h.Values[f]...)
		}
	}
	return append(out, all)
}

func (s *Subject) hints(r *ir.Rule) (h packet.Hints) {
	for _, m := range slices.Concat(r.Src, r.Dst) {
		for _, set := range m.Sets {
			h.Addrs = append(h.Addrs, s.Members[set]...)
			if static := s.Program.Sets[set].Static; static != nil {
				for p := range static.Prefixes() {
					if h.Addrs = append(h.Addrs, p); len(h.Addrs) > 100 {
						break
					}
				}
			}
		}
	}
	for _, m := range r.Match {
		if m.Field >= packet.NumFields {
			continue // not a field of frames
		}
		for _, v := range m.Values[:min(20, len(m.Values))] {
			h.Values[m.Field] = append(h.Values[m.Field], v.First, v.Last)
		}
	}
	for _, m := range r.Payload {
		for _, p := range m.Any {
			h.Texts = append(h.Texts, p.Text)
		}
		for _, a := range m.At {
			h.Texts = append(h.Texts, append(make([]byte, a.Offset), a.Value...))
		}
	}
	return h
}
