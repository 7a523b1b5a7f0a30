package firstpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Policy writes the policy: what serves is served, answers to what the host asks pass, and the rest is dropped. file is its name, for
// the commands in its comments.
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
	p("# All other packets are dropped. Only neighbor discovery, ICMP errors and DHCP still pass, up to a limit.")
	p("default: drop")
	p("")
	p("# Packets that no correct host sends are dropped first: off, standard or strict.")
	p("checks: standard")
	p("")
	p("sets:")
	p("  # Filled by `floodwall block ADDRESS --for 1h`. Entries end by themselves.")
	p("  bans: {dynamic: true, max: 100000, timeout: 1h}")
	if len(h.Resolvers) > 0 {
		p("  # Name servers of this host (resolv.conf).")
		p("  resolvers: [%s]", joined(h.Resolvers))
	}
	p("")
	p("rules: # the first rule that matches decides")
	p("  - {name: banned, from: $bans, then: drop}")
	h.answers(p)
	h.services(p)
	return b.String()
}

// answers writes the rules for answers to what the host asks. They keep no state, so they run in XDP.
func (h *Host) answers(p func(string, ...any)) {
	clients := fmt.Sprintf("%d-%d", h.Clients[0], h.Clients[1])
	if len(h.Resolvers) > 0 {
		p("  # Answers to DNS queries of this host. Ports below 1024 are never those of a query.")
		p("  - {name: dns-answers, from: $resolvers, proto: [tcp, udp], sport: 53, port: 1024-65535, then: pass}")
	}
	p("  # Answers of web servers that this host asks, for updates say. None of these packets opens a connection.")
	p("  - {name: fetch-answers, proto: tcp, flags: ack, sport: [80, 443], port: %s, then: pass}", clients)
	p("  # Answers of time servers. More than this is a flood.")
	p("  - {name: time-excess, proto: udp, sport: 123, over: {rate: 100/s}, then: drop}")
	p("  - {name: time-answers, proto: udp, sport: 123, port: [123, %s], then: pass}", clients)
	if ports := h.answerPorts(); ports != "" {
		p("  # Answers of all other protocols that this host asks. It needs connection tracking, and a dropped packet then costs more.")
		p("  # It names the ports of clients, without those of services here: in front of `syn: protect` no rule may ask for the state.")
		p("  # - {name: answers, port: %s, state: [established, related], then: pass}", ports)
	}
}

// answerPorts are the ports of clients, as a policy writes them, without those of services of TCP, which are protected. It is "" when
// none are left.
func (h *Host) answerPorts() string {
	var ranges []string
	from := h.Clients[0]
	until := func(last int) {
		switch {
		case from == last:
			ranges = append(ranges, fmt.Sprint(from))
		case from < last:
			ranges = append(ranges, fmt.Sprintf("%d-%d", from, last))
		}
	}
	for _, s := range slices.SortedFunc(slices.Values(h.Services), func(a, b Service) int { return cmp.Compare(a.Port, b.Port) }) {
		if port := int(s.Port); s.Proto == unix.IPPROTO_TCP && port >= from && port <= h.Clients[1] {
			until(port - 1)
			from = port + 1
		}
	}
	until(h.Clients[1])
	if len(ranges) > 1 {
		return "[" + strings.Join(ranges, ", ") + "]"
	}
	return strings.Join(ranges, "")
}

// services writes what serves. SSH stands first, and is there in any case.
func (h *Host) services(p func(string, ...any)) {
	p("")
	p("services: # after the rules: what this host serves, by what listens now")
	list := slices.Clone(h.Services)
	ssh := sockets.Service{Proto: unix.IPPROTO_TCP, Port: 22}
	isSSH := func(s Service) bool { return s.Service == ssh || s.Program == "sshd" }
	if !slices.ContainsFunc(list, isSSH) {
		list = append(list, Service{ssh, "nothing listens there now; it is here so that nobody is locked out"})
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
		case s.Proto == unix.IPPROTO_TCP:
			p("  - {name: %s, port: %s, syn: protect} # SYN cookies in XDP while a SYN flood comes", name, s)
		case s.Port == 53:
			p("  - {name: %s, port: %s} # for a resolver that others use, see `guard: dns`", name, s)
		case h.maybeClient(sockets.Socket{Service: s.Service}):
			p("  - {name: %s, port: %s} # the kernel gives such a port to clients, too: remove the line if only this host uses it", name, s)
		default:
			p("  - {name: %s, port: %s}", name, s)
		}
	}
	for _, s := range h.Unsure {
		p("  # %s is left out: %sit looks like a client's socket. Remove the # if other hosts need it.", s, with(s.Program))
		p("  # - {name: %s, port: %s}", s.Name(), s)
	}
	for _, s := range h.LeftOut {
		p("  # %s is left out: %sonly hosts on the same link use it.", s, with(s.Program))
	}
}

// Closed says in words which ports stay closed though sockets are bound to them, and why; "" when there are none.
func (h *Host) Closed() string {
	var parts []string
	for _, left := range []struct {
		list []Service
		why  string
	}{
		{h.LeftOut, "which only hosts on the same link use"},
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

func joined(list []netip.Addr) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

// quoted writes names as YAML: a device may be called anything without a space or a slash.
func quoted(names []string) (list []string) {
	for _, name := range names {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != "" || strings.ContainsAny(name[:1], "-.0123456789") {
			name = fmt.Sprintf("%q", name)
		}
		list = append(list, name)
	}
	return list
}
