// SPDX-License-Identifier: Apache-2.0

package firstpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// Policy returns the text of the policy. Served ports become services, and all other packets are dropped, except replies. file is the name of the
// policy for the commands in its comments.
func (h *Host) Policy(file string) string {
	var b strings.Builder
	p := func(format string, words ...any) { fmt.Fprintf(&b, format+"\n", words...) }
	p("# The first policy of this host, by `floodwall init`. Read each line, and change it to what you want. Then:")
	p("#   floodwall check %s", file)
	p("#   floodwall apply %s --confirm 60s    it ends after 60 s by itself, unless you confirm", file)
	p("#   floodwall confirm                           from a second terminal: you can still log in")
	p("")
	p("# Packets from outside arrive here.")
	p("devices: [%s]", strings.Join(quoted(h.Devices), ", "))
	p("")
	p("# All other packets are dropped. Only neighbor discovery, ICMP errors and DHCP still pass, up to a limit, and")
	p("# replies to what this host asks, by themselves.")
	p("default: drop")
	p("")
	p("# Packets that no correct host sends are dropped first: off, standard or strict.")
	p("checks: standard")
	p("")
	p("# The daemon names each attack in `floodwall attacks`, and suggests rules. It adds none by itself.")
	p("detect: {baseline: learn}")
	p("")
	p("sets:")
	p("  # Filled by `floodwall block ADDRESS --for 1h`. Entries end by themselves.")
	p("  bans: {dynamic: true, max: 100000, timeout: 1h}")
	p("")
	p("rules: # the first rule that matches decides")
	p("  - {name: banned, from: $bans, then: drop}")
	h.protocols(p)
	h.tunnels(p)
	h.decrypted(p)
	h.services(p)
	return b.String()
}

// services writes the services. SSH is first, and is always included.
func (h *Host) services(p func(string, ...any)) {
	p("")
	p("services: # after the rules: what this host serves, by what listens now")
	list := slices.Clone(h.Services)
	ssh := sockets.Service{Proto: unix.IPPROTO_TCP, Port: 22}
	isSSH := func(s Service) bool { return s.Service == ssh || s.Program == "sshd" }
	if !slices.ContainsFunc(list, isSSH) {
		list = append(list, Service{Service: ssh, Program: "nothing listens there now; it is here so that nobody is locked out"})
	}
	slices.SortStableFunc(list, func(a, b Service) int {
		switch {
		case isSSH(a) == isSSH(b):
			return 0
		case isSSH(a):
			return -1
		}
		return 1
	})
	from := netip.MustParseAddr("203.0.113.7")
	if h.Operator.IsValid() {
		from = h.Operator
	}
	for _, s := range list {
		p("  # %s", strings.Join(slices.DeleteFunc([]string{s.String(), s.Program}, func(w string) bool { return w == "" }), ": "))
		name := s.Name()
		switch {
		case isSSH(s):
			p("  # Let only your own addresses in with `from: [%s]`, and all others are dropped.", from)
			p("  - {name: %s, port: %s}", name, s)
		case exposed.PrivateAs(s.Service) != "":
			p("  # Such a port is of %s, which is not meant for the world: the private networks of this host reach it. Others belong into `from`.", exposed.PrivateAs(s.Service))
			p("  - {name: %s, port: %s, from: [%s]}", name, s, listed(h.privateNetworks()))
		case s.To != "":
			p("  - {name: %s, port: %s} # the NAT of this host sends it on to %s", name, s, s.To)
		case s.Proto == unix.IPPROTO_TCP:
			p("  - {name: %s, port: %s, syn: protect} # SYN cookies in XDP while a SYN flood comes", name, s)
		case s.Port == 53:
			p("  - {name: %s, port: %s} # for a resolver that others use, see `guard: dns`", name, s)
		case policy.FloodKey(s.Port) != "" && !h.Clients.Maybe(s.Service):
			key, why := facts.FloodKey(s.Port, s.Program)
			if why != "" {
				p("  # %s.", why)
			}
			p("  - {name: %s, port: %s} # with `%s`, clients are served during a flood; it needs XDP", name, s, key)
		case h.Clients.Maybe(s.Service):
			p("  - {name: %s, port: %s} # the kernel gives such a port to clients, too: remove the line if only this host uses it", name, s)
		default:
			p("  - {name: %s, port: %s}", name, s)
		}
	}
	for _, r := range h.Ranges {
		if r.First == 0 {
			p("  # The NAT of this host sends on to %s whatever asks for it: %s", r.To, r.Rule)
			p("  # Write a line for each port that is served there, as `- {name: https-tcp, port: tcp/443}`.")
			continue
		}
		out := ""
		if slices.ContainsFunc(h.Private, func(s Service) bool { return s.Proto == r.Proto && r.First <= s.Port && s.Port <= r.Last }) {
			p("  # %s is left out: ports of it are open on this host, too, and are not meant for the world. Name in `from` who needs it, and remove the #.", r.Port)
			out = "# "
		} else {
			p("  # %s", r.Port)
		}
		p("  %s- {name: %s, port: %s} # the NAT of this host sends it on to %s", out, strings.Replace(r.Port.String(), "/", "-", 1), r.Port, r.To)
	}
	for _, s := range h.Unsure {
		p("  # %s is left out: %sit looks like a client's socket. Remove the # if other hosts need it.", s, with(s.Program))
		p("  # - {name: %s, port: %s}", s.Name(), s)
	}
	for _, s := range h.Private {
		who := with(s.Program)
		if s.To != "" {
			who = "the NAT of this host sends it on to " + s.To + ", and "
		}
		p("  # %s is left out: %ssuch a port is of %s, which is not meant for the world. Name in `from` who needs it, and remove the #.",
			s, who, exposed.PrivateAs(s.Service))
		p("  # - {name: %s, port: %s, from: [%s]}", s.Name(), s, from)
	}
	for _, s := range h.LeftOut {
		p("  # %s is left out: %sonly hosts on the same link use it.", s, with(s.Program))
	}
}

// Closed returns a text on the ports that stay closed although sockets are bound to them, with the reasons. It returns "" when there are none.
func (h *Host) Closed() string {
	var parts []string
	for _, left := range []struct {
		list []Service
		why  string
	}{
		{h.LeftOut, "which only hosts on the same link use"},
		{h.Private, "which are not meant for the world: name in `from` who needs them, and remove the #"},
		{h.Unsure, "at ports of clients, by programs that serve at others: remove the # of those that other hosts need"},
	} {
		var words []string
		for _, s := range left.list {
			word := s.String()
			if s.Program != "" {
				word += " (" + s.Program + ")"
			}
			words = append(words, word)
		}
		if words != nil {
			parts = append(parts, strings.Join(words, ", ")+", "+left.why)
		}
	}
	return strings.Join(parts, "; ")
}

func with(program string) string {
	if program == "" {
		return ""
	}
	return program + " listens there, and "
}

// quoted quotes names for YAML. The name of a device may have any characters except spaces and slashes.
func quoted(names []string) (list []string) {
	for _, name := range names {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != "" || strings.ContainsAny(name[:1], "-.0123456789") {
			name = fmt.Sprintf("%q", name)
		}
		list = append(list, name)
	}
	return list
}
