package policy

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// Daemon says what `floodwall daemon` does while the policy runs.
type Daemon struct {
	Listen netip.AddrPort `json:"listen"`           // where it answers what can be read, beside its unix sockets; the zero value is nowhere
	TLS    *TLS           `json:"tls,omitempty"`    // nil: Listen is an address of this host alone
	Sample uint32         `json:"sample,omitempty"` // it is handed one in so many of all packets that come to XDP; 0 is none
	Adapts bool           `json:"adapts,omitempty"` // Sample is only the first share: it is adapted to the rate
	Detect Detect         `json:"detect,omitzero"`  // how it looks for attacks

	Webhook  *Webhook  `json:"webhook,omitempty"`  // who is told what it does; nil: nobody
	CrowdSec *CrowdSec `json:"crowdsec,omitempty"` // whose decisions it enforces; nil: nobody's
	Suricata *Suricata `json:"suricata,omitempty"` // whose alerts ban; nil: nobody's
	Upstream *Upstream `json:"upstream,omitempty"` // the routers upstream; nil: none
}

// Equal reports whether two say the same of where the daemon answers.
func (d Daemon) Equal(o Daemon) bool {
	same := d.Listen == o.Listen && (d.TLS == nil) == (o.TLS == nil)
	return same && (d.TLS == nil || *d.TLS == *o.TLS)
}

// AddsRules reports whether a daemon adds temporary rules by itself; nil is no daemon.
func (d *Daemon) AddsRules() bool {
	return d != nil && (d.Detect.On || d.Upstream != nil && d.Upstream.Receive.Max > 0)
}

// Page is the address of the live page, for a browser, or "" when the daemon listens nowhere. HOST stands for an address of this host
// where the daemon listens on all.
func (d Daemon) Page() string {
	if !d.Listen.IsValid() {
		return ""
	}
	scheme, at := "http", d.Listen.String()
	if d.TLS != nil {
		scheme = "https"
	}
	if d.Listen.Addr().IsUnspecified() {
		at = fmt.Sprintf("HOST:%d", d.Listen.Port())
	}
	return scheme + "://" + at + "/"
}

// Waits says what nobody does while no daemon runs.
func (d Daemon) Waits() string {
	var waits []string
	if d.Listen.IsValid() {
		waits = append(waits, "answers on "+d.Listen.String())
	}
	if d.Sample > 0 || d.Detect.On {
		waits = append(waits, "takes samples of the traffic")
	}
	if d.Detect.On {
		waits = append(waits, "looks for attacks")
	}
	if d.Detect.Auto.Max > 0 {
		waits = append(waits, "adds rules against them")
	}
	if d.Webhook != nil {
		waits = append(waits, "tells the webhook what happens")
	}
	if d.CrowdSec != nil {
		waits = append(waits, "bans as CrowdSec decides")
	}
	if d.Suricata != nil {
		waits = append(waits, "bans whom Suricata warns of")
	}
	if d.Upstream != nil {
		waits = append(waits, "tells `floodwall-bgp` of the routers upstream")
	}
	return "nobody " + strings.Join(waits, ", nor ")
}

// TLS are the files of a server that asks its clients for certificates, by their absolute paths.
type TLS struct{ Cert, Key, ClientCA string }

var daemonKeys = []key[Daemon]{
	{"listen", func(p place, to *Daemon, v *node) { to.Listen = scalarOf(p, "listen", v, readListen) }},
	{"tls", func(p place, to *Daemon, v *node) {
		to.TLS = &TLS{}
		in := p.in("tls")
		seen := readKeys(in, "tls", v, tlsKeys, to.TLS)
		for _, name := range names(tlsKeys) {
			in.require(v, seen, name, "write tls: {cert: /etc/…, key: /etc/…, client_ca: /etc/…}")
		}
	}},
	{"crowdsec", func(p place, to *Daemon, v *node) { to.CrowdSec = p.crowdSec(v) }},
	{"suricata", func(p place, to *Daemon, v *node) { to.Suricata = p.suricata(v) }},
	{"webhook", func(p place, to *Daemon, v *node) { to.Webhook = p.webhook(v) }},
	{"sample", func(p place, to *Daemon, v *node) { to.Sample = scalarOf(p, "sample", v, sampleTraffic) }},
}

// sampleTraffic reads of how many packets one is handed to the daemon.
func sampleTraffic(text string) (uint32, *flaw) {
	const least = 10 // more often the samples would cost more than the filter
	n, f := sample(text)
	if f == nil && n < least {
		return 0, want("one in 10 packets or fewer, as in 1/1000", text).hintf("write 1/1000, which is enough for a flood")
	}
	return n, f
}

var tlsKeys = []key[TLS]{
	{"cert", func(p place, to *TLS, v *node) { to.Cert = scalarOf(p, "cert", v, readAbsolute) }},
	{"key", func(p place, to *TLS, v *node) { to.Key = scalarOf(p, "key", v, readAbsolute) }},
	{"client_ca", func(p place, to *TLS, v *node) { to.ClientCA = scalarOf(p, "client_ca", v, readAbsolute) }},
}

// daemon reads what the daemon does.
func (p place) daemon(to *Policy, v *node) {
	p = p.in("daemon")
	seen := readKeys(p, "daemon", v, daemonKeys, &to.Daemon)
	listen := v.Get("listen")
	switch {
	case seen == nil:
	case listen == nil && seen["tls"]:
		p.errorf(v.Pos, "tls is of no use without listen").Hint = "say where to listen, as in listen: 192.0.2.1:9810"
	case seen["tls"] || !to.Daemon.Listen.IsValid():
	case !to.Daemon.Listen.Addr().IsLoopback():
		p.errorf(listen.Pos, "listen %s can be reached from elsewhere, and needs tls", to.Daemon.Listen).Hint =
			"write listen: 127.0.0.1:9810, or add tls: {cert: …, key: …, client_ca: …}"
	}
}

func readListen(text string) (netip.AddrPort, *flaw) {
	const example = "write 127.0.0.1:9810, or \"[::1]:9810\""
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, want("an address with a port", text).hintf(example)
	}
	if a.Port() == 0 || a.Addr().Zone() != "" {
		return netip.AddrPort{}, want("an address with a port from 1 on, without a zone", text).hintf(example)
	}
	return a, nil
}

// readAbsolute reads the path of a file that is read long after the policy, wherever a copy of that is then.
func readAbsolute(text string) (string, *flaw) {
	if !filepath.IsAbs(text) {
		return "", want("an absolute path", text).hintf("begin it with /")
	}
	return text, nil
}
