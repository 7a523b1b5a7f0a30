// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// rateUnits are the time units of a rate, by their first letters (libxt_limit.c).
var rateUnits = []struct {
	letter byte
	unit   string
}{{'s', "s"}, {'m', "min"}, {'h', "h"}, {'d', "day"}}

// parseRate parses `10/sec`, `3/hour`, or for hashlimit `512kb/s`. Without a unit it is per second.
func parseRate(text string) (n uint64, unit string, bits, ok bool) {
	amount, time, hasTime := strings.Cut(text, "/")
	digits := strings.TrimRight(amount, "kmgbKMGB")
	n, err := strconv.ParseUint(digits, 10, 40)
	if err != nil || n == 0 {
		return 0, "", false, false
	}
	switch strings.ToLower(amount[len(digits):]) {
	case "":
	case "b":
		n, bits = n*8, true
	case "kb":
		n, bits = n*8<<10, true
	case "mb":
		n, bits = n*8<<20, true
	default:
		return 0, "", false, false
	}
	if !hasTime {
		return n, "s", bits, true
	}
	for _, u := range rateUnits {
		if time != "" && time[0]|0x20 == u.letter {
			return n, u.unit, bits, true
		}
	}
	return 0, "", false, false
}

// limit parses the options of limit or hashlimit. all contains the rule's tokens: the matches before this one select the packets that the limit
// counts.
func (r *iptablesRuleReader) limit(name string, of, all []Token) {
	l := &Limit{At: r.rule.At, What: "-m " + name, Rate: 3, Unit: "h", Burst: 5} // as in iptables-extensions(8)
	modes, lengths, ok, burst := "", map[string]string{}, true, uint64(0)
	for _, t := range of {
		option := strings.TrimPrefix(strings.TrimPrefix(t.Name, "--"), "hash")
		switch option {
		case "limit", "limit-upto", "limit-above":
			var read bool
			l.Rate, l.Unit, l.Bits, read = parseRate(t.Args[0])
			l.Above = (option == "limit-above") != t.Not
			ok = ok && read && !(name == "limit" && t.Not)
		case "limit-burst":
			n, _, bits, read := parseRate(t.Args[0])
			l.Burst, burst = n, n
			ok = ok && read && (!bits || name == "hashlimit") && !t.Not
		case "limit-mode":
			modes = t.Args[0]
		case "limit-srcmask", "limit-dstmask":
			lengths[option] = t.Args[0]
		case "limit-name":
			l.Table = t.Args[0]
		case "limit-htable-size", "limit-htable-max", "limit-htable-expire", "limit-htable-gcinterval":
		default:
			ok = false
		}
	}
	ok = ok && r.perMode(l, modes, lengths) && (l.Bits || l.Rate <= MaxPackets)
	if l.Bits {
		ok = inBytes(l, burst) && ok
	}
	if !ok {
		r.unknown("-m " + name)
		return
	}
	if other := behind(all, name); other != "" && l.Less == "" {
		l.Less = fmt.Sprintf("-m %s stands before -m %s and counts packets that are left out there, too: the policy does not", name, other)
	}
	r.each(func(c Cond) Cond { return c.And(Cond{Limit: l}) })
}

// connections parses the options of connlimit. connlimit also counts the packet's own connection, so "above 20" means the 21st (xt_connlimit.c).
func (r *iptablesRuleReader) connections(of []Token) {
	l := &Limit{At: r.rule.At, What: "-m connlimit"}
	length, to, ok := 32, false, true
	if r.file.family == IPv6 {
		length = 128
	}
	for _, t := range of {
		switch t.Name {
		case "--connlimit-above", "--connlimit-upto":
			l.Above = (t.Name == "--connlimit-above") != t.Not
			n, read := Number(t.Args[0], MaxConnections)
			l.Connections, ok = uint64(n), ok && read && n > 0
		case "--connlimit-mask":
			n, read := Number(t.Args[0], uint64(length))
			length, ok = int(n), ok && read && n > 0
		case "--connlimit-daddr":
			to = true
		case "--connlimit-saddr":
		default:
			ok = false
		}
	}
	if ok = ok && l.Connections > 0; !ok || !r.rule.Begins() {
		r.unknown("-m connlimit")
		return
	}
	if to {
		l.Per = l.Per.To(r.file.family, length)
	} else {
		l.Per = l.Per.From(r.file.family, length)
	}
	if !r.rule.FirstOnly() {
		l.Less = FirstPackets
	}
	r.each(func(c Cond) Cond { return c.And(Cond{Limit: l}) })
}

// inBytes sets the burst of a limit in bytes. A bucket of hashlimit starts with the bytes of a second, and counts each length in units of 16 bytes.
// If a burst is given, it is the bytes of that many more seconds, once for each address (kernel xt_hashlimit.c, hashlimit_byte_cost).
func inBytes(l *Limit, burst uint64) bool {
	second := l.Rate / map[string]uint64{"s": 1, "min": 60, "h": 3600, "day": 86400}[l.Unit]
	const least, most = 8 * 1500, 100_000_000_000 // of a policy
	l.Burst = max(second, burst)
	l.Less = "it counts lengths in parts of 16 bytes, and the policy in bytes"
	if burst > 0 {
		l.Less += "; its burst comes once for each address, and that of the policy again"
	}
	return l.Burst >= least && l.Burst <= most && l.Rate <= most
}

// behind returns an extension that is evaluated after the extension name, or "". Packets that do not match it were already counted.
func behind(all []Token, name string) string {
	seen := false
	for _, t := range all {
		switch {
		case t.Name != "-m" || t.Module != "" || t.Unread != "":
		case t.Args[0] == name:
			seen = true
		case seen && t.Args[0] != "comment":
			return t.Args[0]
		}
	}
	return ""
}

// perMode parses --hashlimit-mode and the masks. A port in the mode makes no difference if the rule allows only one port.
func (r *iptablesRuleReader) perMode(l *Limit, modes string, lengths map[string]string) bool {
	most, ok := 32, true
	if r.file.family == IPv6 {
		most = 128
	}
	length := func(option string) int {
		text, given := lengths[option]
		if !given {
			return most
		}
		n, read := Number(text, uint64(most))
		ok = ok && read && n > 0
		return int(n)
	}
	for mode := range strings.SplitSeq(modes, ",") {
		switch mode {
		case "":
		case "srcip":
			l.Per = l.Per.From(r.file.family, length("limit-srcmask"))
		case "dstip":
			l.Per = l.Per.To(r.file.family, length("limit-dstmask"))
		case "dstport":
			for _, c := range r.rule.Alts {
				ok = ok && c.Field[packet.DPort] != nil && c.Field[packet.DPort].Count() == 1
			}
		default:
			return false
		}
	}
	return ok
}
