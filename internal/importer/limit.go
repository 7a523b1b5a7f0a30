package importer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// limit is a rate that rules compare packets with: a token bucket, as that of xt_limit, xt_hashlimit and nft_limit in the
// kernel (net/netfilter). It is full at first, and a packet that finds no token takes none: so is `over` of a policy.
type limit struct {
	at    place
	what  string // in the words of messages: `-m limit`
	above bool   // the rule matches what exceeds it; if not, what does not
	rate  uint64 // packets, or bits, in unit
	unit  string // s, min, h or day
	bits  bool
	burst uint64 // packets or bits
	per   prefixes
	less  string // how the rule differs from this, or ""
	table string // of hashlimit: rules of the same table count together
}

// prefixes are the lengths to which addresses are cut; 0 is not by that address.
type prefixes struct{ from4, from6, to4, to6 int }

// global reports whether l is one for all packets.
func (l *limit) global() bool { return l.per == prefixes{} }

// key is equal for limits that count the same way.
func (l *limit) key() string {
	if l == nil {
		return ""
	}
	return fmt.Sprint(l.rate, l.unit, l.bits, l.burst, l.per.from4+l.per.from6 > 0, l.per.to4+l.per.to6 > 0, l.above)
}

// String is l as a policy has it.
func (l *limit) String() string {
	unit := ""
	if l.bits {
		unit = "bit"
	}
	words := []string{fmt.Sprintf("rate: %d%s/%s", l.rate, unit, l.unit)}
	var per []string
	if l.per.from4+l.per.from6 > 0 {
		per = append(per, prefixWord("from", l.per.from4, l.per.from6))
	}
	if l.per.to4+l.per.to6 > 0 {
		per = append(per, prefixWord("to", l.per.to4, l.per.to6))
	}
	switch len(per) {
	case 1:
		words = append(words, "per: "+per[0])
	case 2:
		words = append(words, "per: ["+strings.Join(per, ", ")+"]")
	}
	return "{" + strings.Join(append(words, fmt.Sprintf("burst: %d%s", l.burst, unit)), ", ") + "}"
}

// prefixWord is `from/24/56`; a family that the limit is not of gets the usual length.
func prefixWord(end string, v4, v6 int) string {
	if v4 == 0 {
		v4 = 32
	}
	if v6 == 0 {
		v6 = 64
	}
	if v6 == 64 {
		if v4 == 32 {
			return end
		}
		return fmt.Sprintf("%s/%d", end, v4)
	}
	return fmt.Sprintf("%s/%d/%d", end, v4, v6)
}

// rateUnits are the times of a rate, by how they begin (libxt_limit.c).
var rateUnits = []struct {
	letter byte
	unit   string
}{{'s', "s"}, {'m', "min"}, {'h', "h"}, {'d', "day"}}

// parseRate reads `10/sec`, `3/hour`, or of hashlimit `512kb/s`; without a time it is a second's.
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

// maxPackets is the greatest rate that a policy can have, in packets a second.
const maxPackets = 10_000_000

// limit reads the options of limit or hashlimit. all are the rule's: matches before this one decide which packets it counts.
func (r *ruleReader) limit(name string, of, all []token) {
	l := &limit{at: r.rule.at, what: "-m " + name, rate: 3, unit: "h", burst: 5} // as in iptables-extensions(8)
	modes, lengths, ok := "", map[string]string{}, true
	for _, t := range of {
		option := strings.TrimPrefix(strings.TrimPrefix(t.name, "--"), "hash")
		switch option {
		case "limit", "limit-upto", "limit-above":
			var read bool
			l.rate, l.unit, l.bits, read = parseRate(t.args[0])
			l.above = (option == "limit-above") != t.not
			ok = ok && read && !(name == "limit" && t.not)
		case "limit-burst":
			n, _, bits, read := parseRate(t.args[0])
			l.burst = n
			ok = ok && read && (!bits || name == "hashlimit") && !t.not
		case "limit-mode":
			modes = t.args[0]
		case "limit-srcmask", "limit-dstmask":
			lengths[option] = t.args[0]
		case "limit-name":
			l.table = t.args[0]
		case "limit-htable-size", "limit-htable-max", "limit-htable-expire", "limit-htable-gcinterval":
		default:
			ok = false
		}
	}
	ok = ok && r.perMode(l, modes, lengths) && (l.bits || l.rate <= maxPackets)
	if l.bits && l.burst < 8*1500 { // a policy's least
		ok = false
	}
	if !ok {
		r.unknown("-m " + name)
		return
	}
	if other := behind(all, name); other != "" {
		l.less = fmt.Sprintf("-m %s stands before -m %s and counts packets that are left out there, too: the policy does not", name, other)
	}
	r.each(func(c cond) cond { return c.and(cond{limit: l}) })
}

// behind is an extension that is asked after name: packets that it leaves out have been counted.
func behind(all []token, name string) string {
	seen := false
	for _, t := range all {
		switch {
		case t.name != "-m" || t.module != "" || t.unread != "":
		case t.args[0] == name:
			seen = true
		case seen && t.args[0] != "comment":
			return t.args[0]
		}
	}
	return ""
}

// perMode reads --hashlimit-mode and the masks. A port that the rule fixes makes no difference.
func (r *ruleReader) perMode(l *limit, modes string, lengths map[string]string) bool {
	most, ok := 32, true
	if r.file.family == ipv6 {
		most = 128
	}
	length := func(option string) int {
		text, given := lengths[option]
		if !given {
			return most
		}
		n, read := number(text, uint64(most))
		ok = ok && read && n > 0
		return int(n)
	}
	for mode := range strings.SplitSeq(modes, ",") {
		switch mode {
		case "":
		case "srcip":
			l.per = l.per.from(r.file.family, length("limit-srcmask"))
		case "dstip":
			l.per = l.per.to(r.file.family, length("limit-dstmask"))
		case "dstport":
			for _, c := range r.rule.alts {
				ok = ok && c.field[packet.DPort] != nil && c.field[packet.DPort].count() == 1
			}
		default:
			return false
		}
	}
	return ok
}

func (p prefixes) from(f family, length int) prefixes {
	if f == ipv4 {
		p.from4 = length
	} else {
		p.from6 = length
	}
	return p
}

func (p prefixes) to(f family, length int) prefixes {
	if f == ipv4 {
		p.to4 = length
	} else {
		p.to6 = length
	}
	return p
}

// both is the prefixes of a limit for IPv4 and the same for IPv6.
func (p prefixes) both(q prefixes) prefixes {
	return prefixes{max(p.from4, q.from4), max(p.from6, q.from6), max(p.to4, q.to4), max(p.to6, q.to6)}
}
