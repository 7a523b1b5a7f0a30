// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

const perForm = "from, to, from/24 or from/24/56: with the lengths of IPv4 and of IPv6 prefixes"

// The default prefix lengths in bits: an IPv4 address, and the smallest IPv6 prefix of one customer (RFC 6177).
const (
	defaultV4 = 32
	defaultV6 = 64
)

var perSchema = define("per", text("^(from|to)(/[0-9]+){0,2}$").titled("`from` or `to`, with prefix lengths").described(
	"`from` or `to`, then the length of the IPv4 prefix and of the IPv6 prefix. Without them: 32 and 64.").
	withExamples(`"from", "from/24", "from/24/56", "to"`))

// per parses the key per of a rate limit: the prefixes that each get their own rate.
func (p place) per(to *overForm, v *node) { p.prefixes(&to.over.From, &to.over.To, v) }

// prefixes parses the key per: the prefix lengths of sources, of destinations, or of both.
func (p place) prefixes(from, to **PrefixLen, v *node) {
	p.each("per", v, func(w *node) {
		end, length, f := perEnd(w.Text)
		if f != nil {
			p.flawed(w.Pos, "per", listHint(f, "per", w, v))
			return
		}
		at := from
		if end == "to" {
			at = to
		}
		if *at != nil {
			p.errorf(w.Pos, "per names %s twice", end).Hint = "for prefixes of two lengths write two limits: over: [{…}, {…}]"
			return
		}
		*at = &length
	})
}

// perEnd parses an element of per: from or to, with optional prefix lengths after it.
func perEnd(text string) (end string, length PrefixLen, f *flaw) {
	parts := strings.Split(text, "/")
	if end = parts[0]; end != "from" && end != "to" {
		return end, length, perHint(want(perForm, text), text)
	}
	length = PrefixLen{defaultV4, defaultV6}
	if len(parts) > 3 {
		return end, length, perLengthHint(want(perForm, text), parts)
	}
	for i, to := range []*int{&length.V4, &length.V6} {
		if i+1 >= len(parts) {
			break
		}
		if *to, f = prefixLen(text, parts, i); f != nil {
			return end, length, f
		}
	}
	return end, length, nil
}

// prefixLen parses the prefix length for a family. i is 0 for IPv4 and 1 for IPv6. parts has from or to, followed by the lengths. Flaws quote text.
func prefixLen(text string, parts []string, i int) (int, *flaw) {
	most, name := [...]uint64{32, 128}[i], [...]string{"IPv4", "IPv6"}[i]
	n, f := number(parts[i+1], most)
	if f == nil && n > 0 {
		return int(n), nil
	}
	g := &flaw{msg: fmt.Sprintf("has no length of an %s prefix from 1 to %d, got %s", name, most, wording.Quote(text))}
	switch wide, f := number(parts[i+1], 128); {
	case f == nil && wide == 0:
		g.hintf("for one rate for all leave per out")
	case f == nil && i == 0 && len(parts) == 2:
		g.hintf("the length for IPv4 comes first: write %s/%d/%d", parts[0], defaultV4, wide)
	case f == nil && i == 0 && isDigits(parts[2]):
		g.hintf("the length for IPv4 comes first: write %s/%s/%d", parts[0], parts[2], wide)
	default:
		perLengthHint(g, parts)
	}
	return 0, g
}

// perLengthHint adds a hint about the notation of prefix lengths. The hint uses the lengths in parts as its example.
func perLengthHint(f *flaw, parts []string) *flaw {
	var lengths []string
	for _, part := range parts[1:] {
		if isDigits(part) {
			lengths = append(lengths, part)
		}
	}
	switch {
	case strings.ContainsAny(strings.Join(parts, ""), " ,;"):
		return f // most likely, the author meant a list
	case len(lengths) == 2 && len(parts) > 3:
		return f.hintf("both lengths stand side by side, IPv4 first: %s/%s/%s", parts[0], lengths[0], lengths[1])
	}
	return f.hintf("both lengths are numbers of bits and stand side by side, IPv4 first: %s/24/56", parts[0])
}

// perHint adds a hint for a text that does not begin with from or to.
func perHint(f *flaw, text string) *flaw {
	base, rest, hasRest := strings.Cut(text, "/")
	switch strings.ToLower(base) {
	case "all", "any", "none", "global", "everyone", "total", "*":
		return f.hintf("for one rate for all leave per out")
	case "from4", "from6", "fromv4", "fromv6", "from-v6", "from-ipv6":
		return f.hintf("both lengths stand side by side, IPv4 first: from/%d/%d", defaultV4, defaultV6)
	case "ip", "host", "client", "address", "addr", "source-ip", "src_ip", "source_ip":
		return f.hintf("write from, for the sender's address")
	case "port", "sport", "proto", "connection", "flow":
		return f.hintf("limits count by addresses only, from or to")
	}
	if word, length, ok := strings.Cut(text, " "); ok && isDigits(strings.TrimLeft(length, "/ ")) && (word == "from" || word == "to") {
		return f.hintf("write %s/%s", word, strings.TrimLeft(length, "/ "))
	}
	if near := wording.Nearest(base, []string{"from", "to"}); near != "" && hasRest {
		return f.hintf("did you mean %q?", near+"/"+rest)
	} else if near != "" {
		return f.hintf("did you mean %q?", near)
	}
	return f
}
