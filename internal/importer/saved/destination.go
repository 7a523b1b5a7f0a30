// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
	"strings"

	"go4.org/netipx"
)

// Has reports whether the rule gives an option of the target.
func (r *Rule) Has(option string) bool {
	return slices.ContainsFunc(r.Options, func(t Token) bool { return t.Name == option })
}

// argument returns the argument of an option of the target, or "".
func (r *Rule) argument(option string) string {
	for _, t := range r.Options {
		if t.Name == option && len(t.Args) > 0 {
			return t.Args[0]
		}
	}
	return ""
}

// Destination is the new destination of a rule that translates destinations.
type Destination struct {
	Addr  netipx.IPRange // not valid: the host itself
	Ports Values         // port numbers; nil: the packet's own port
	Known bool
}

// parseDestination parses `ADDRESS[-ADDRESS][:PORT[-PORT]]`; an IPv6 address with ports is in brackets.
func parseDestination(text string) (d Destination) {
	addr, port := text, ""
	switch i := strings.LastIndexByte(text, ':'); {
	case strings.HasPrefix(text, "["):
		addr, port, _ = strings.Cut(text[1:], "]")
		port = strings.TrimPrefix(port, ":")
	case i >= 0 && strings.Count(text, ":") == 1:
		addr, port = text[:i], text[i+1:]
	}
	var ok bool
	if addr != "" {
		if d.Addr, ok = ParseRange(addr); !ok {
			return Destination{}
		}
	}
	if port != "" {
		port, _, _ = strings.Cut(port, "/")
		s, ok := PortSpan(port, "-")
		if !ok {
			return Destination{}
		}
		d.Ports = Values{s}
	}
	d.Known = true
	return d
}

// Translation returns the destination to which a rule's target translates. does is false if the target does not translate destinations.
func (r *Rule) Translation() (d Destination, does bool) {
	switch r.Act.Target {
	case "DNAT":
		return parseDestination(r.argument("--to-destination")), true
	case "REDIRECT":
		return parseDestination(":" + r.argument("--to-ports")), true
	case "NETMAP":
		return Destination{}, true
	case "dnat", "redirect":
		if r.To == nil {
			return Destination{}, true
		}
		return *r.To, true
	}
	return Destination{}, false
}
