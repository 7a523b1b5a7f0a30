// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// limit writes a limit on the rate of packets or bits. If ban is true, the limit may ban sources that exceed it.
func (w *Writer) limit(ban bool) string {
	unit := Choose(w, "", "", "bit", "kbit", "mbit")
	b := fmt.Sprintf("{rate: %d%s/%s", 1+w.IntN(5000), unit, Choose(w, "s", "s", "min", "h", "day"))
	per := Choose(w, "", "from", "from/24", "from/16/48", "to", "to/24/56", "[from, to]", "[from/8/32, to/31/127]")
	if per != "" {
		b += ", per: " + per
	}
	if unit == "" && w.OneIn(2) {
		b += fmt.Sprintf(", burst: %d", 1+w.IntN(300))
	}
	if per != "" && w.OneIn(4) {
		b += fmt.Sprintf(", max: %d", 16+w.IntN(5000))
	}
	if ban && strings.HasPrefix(per, "from") && w.OneIn(4) {
		b += ", ban: " + Choose(w, "10m", "{for: 1h, trust: forgeable, set: s1}", "{for: 30s, set: s0}")
	}
	return b + "}"
}

// rates writes one limit, or a list of one to three.
func (w *Writer) rates(ban bool) string {
	if w.OneIn(2) {
		return w.limit(ban)
	}
	return w.list(3, func() string { return w.limit(ban) })
}

// dns writes the value of the key dns: kinds of DNS messages, or conditions on queries.
func (w *Writer) dns() string {
	if w.OneIn(2) {
		return w.list(3, func() string { return Choose(w, "query", "response", "malformed", "other") })
	}
	return w.keysOf("type: "+Choose(w, "A", "[ANY, TXT]", "255", "1-16"), [][2]string{{"name", Choose(w, "evil.example", "[a.example, b.a.example]", "com", ".")}})
}

// full returns a rule's keys that only XDP supports, and the rule's verdict. The parameter b has the keys that the rule already has.
func (w *Writer) full(b string) (keys, then string) {
	then = Choose(w, "pass", "drop", "drop")
	if w.OneIn(12) && !strings.Contains(b, "vlan: ") {
		keys = "vlan: any, "
	}
	if w.OneIn(3) {
		keys += "over: " + w.rates(then == "drop") + ", "
	}
	if w.OneIn(6) && !strings.Contains(b, "proto: ") && !strings.Contains(b, "port: ") {
		keys += "port: udp/53, dns: "
		if w.OneIn(2) {
			return keys + "query, ", Choose(w, "truncate", "truncate, slip: 2")
		}
		keys += w.dns() + ", "
	}
	if w.OneIn(8) {
		then += Choose(w, ", sample: 1/100", ", observe: true")
	}
	return keys, then
}

// keysOf writes a YAML mapping. It starts with the text first, and has a random selection of the pairs of key and value.
func (w *Writer) keysOf(first string, all [][2]string) string {
	b := first
	for _, k := range all {
		if w.OneIn(3) {
			b += ", " + k[0] + ": " + k[1]
		}
	}
	return "{" + strings.TrimPrefix(b, ", ") + "}"
}

// essential writes the key essential. This key enables, disables or limits the packets that pass under any policy.
func (w *Writer) essential() string {
	var all [][2]string
	for _, name := range policy.EssentialNames {
		all = append(all, [2]string{name, Choose(w, "on", "off", "{limit: "+Choose(w, "off", "500/s", w.rates(false))+"}")})
	}
	return "essential: " + w.keysOf("", all) + "\n"
}

// protections writes services, each with a protection (syn, udp or guard).
func (w *Writer) protections() string {
	rate := func() string {
		return Choose(w, fmt.Sprintf("%d/s", 1+w.IntN(9000)), fmt.Sprintf("{rate: %d/min}", 60+w.IntN(9000)))
	}
	offRate := func() string { return Choose(w, "off", rate()) }
	rates := func() string { return Choose(w, "off", w.rates(false)) }
	var b strings.Builder
	for i := range w.IntN(4) {
		key := ""
		switch w.IntN(3) {
		case 0:
			key = fmt.Sprintf("port: tcp/%d, syn: ", 1+w.IntN(65535)) + Choose(w, "protect", "always", w.keysOf(Choose(w, "when: auto", "when: always", "mode: auto", "mode: host", "mode: router"), [][2]string{
				{"start", "9000/s"}, {"stop", "1000/s"}, {"limit", rates()}, {"total", offRate()}, {"authenticated", offRate()},
				{"mss", "1400"}, {"wscale", "7"}, {"flows", "1000"},
			}), "{mode: router, backends: [192.0.2.9, '2001:db8::9']}")
		case 1:
			key = fmt.Sprintf("port: udp/%d, udp: ", 1+w.IntN(65535)) + Choose(w, "protect", w.keysOf("protect: "+Choose(w, "generic", "wireguard", "quic", "a2s", "raknet"),
				[][2]string{{"start", "9000/s"}, {"stop", "1000/s"}, {"known", rate()}, {"limit", rates()}, {"total", offRate()}, {"observe", "true"}}))
		case 2:
			key = "port: udp/53, guard: " + Choose(w, "dns", w.keysOf("type: dns", [][2]string{
				{"limit", rates()}, {"total", offRate()}, {"verified", rates()}, {"types", Choose(w, "off", "[ANY]", "[TXT, 255]")}, {"replies", offRate()}, {"names", offRate()},
				{"responses", Choose(w, "off", "{rate: 20mbit/s, per: to/24/56}")}, {"verify", Choose(w, "off", "10m")}, {"observe", "true"},
			}))
		}
		fmt.Fprintf(&b, "  - {name: p%d, %s}\n", i, key)
	}
	return b.String()
}
