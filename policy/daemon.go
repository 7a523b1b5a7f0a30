// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// Daemon is the configuration of `floodwall daemon`, which runs beside the policy.
type Daemon struct {
	Listen netip.AddrPort `json:"listen"`           // the address of the daemon's read-only HTTP API, in addition to its Unix sockets; the zero value: none
	TLS    *TLS           `json:"tls,omitempty"`    // nil: Listen is a loopback address
	Sample uint32         `json:"sample,omitempty"` // n: the daemon gets one in n packets that reach XDP as samples; 0: none
	Adapts bool           `json:"adapts,omitempty"` // Sample is only the initial share, which is adapted to the packet rate
	Detect Detect         `json:"detect,omitzero"`  // the parameters of attack detection

	Webhook  *Webhook  `json:"webhook,omitempty"`  // the server that gets the daemon's events; nil: none
	CrowdSec *CrowdSec `json:"crowdsec,omitempty"` // the CrowdSec API whose decisions the daemon enforces; nil: none
	Suricata *Suricata `json:"suricata,omitempty"` // the Suricata log whose alerts cause bans; nil: none
	Upstream *Upstream `json:"upstream,omitempty"` // the upstream routers; nil: none
}

// Equal reports whether two configurations have the same listening address and TLS files.
func (d Daemon) Equal(o Daemon) bool {
	same := d.Listen == o.Listen && (d.TLS == nil) == (o.TLS == nil)
	return same && (d.TLS == nil || *d.TLS == *o.TLS)
}

// AddsRules reports whether the daemon adds temporary rules by itself. nil means no daemon.
func (d *Daemon) AddsRules() bool {
	return d != nil && (d.Detect.On || d.Upstream != nil && d.Upstream.Receive.Max > 0)
}

// Page returns the URL of the live page, "" if the daemon does not listen. If the daemon listens on all addresses, HOST in the URL stands for any
// address of this host.
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

// Waits returns a text that lists the tasks of the policy that remain undone while no daemon runs.
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

// TLS has the absolute paths of the files of a server that requires client certificates.
type TLS struct{ Cert, Key, ClientCA string }

var daemonKeys = []key[Daemon]{
	{name: "listen", value: into(word(text("^[^ ]+:[1-9][0-9]{0,4}$"), readListen), func(to *Daemon) *netip.AddrPort { return &to.Listen }),
		doc: "An address and a port for reading the API, the page and metrics. Without `tls` it must be a loopback address.", examples: `"127.0.0.1:9810"`},
	{name: "sample", value: into(word(text("^1/[1-9][0-9]+$"), sampleTraffic), func(to *Daemon) *uint32 { return &to.Sample }),
		doc: "The share of all packets at XDP that the daemon gets, each with its verdict: `top` then shows who is dropped, too. 1/1000 " +
			"suits most hosts. With `detect` this is the first share: it adapts to about 1,500 samples a second. The most are 10,000 a " +
			"second for each CPU.", examples: `"1/1000"`},
	{name: "tls", value: custom(place.tls, object(tlsKeys)),
		doc: "Certificates for `listen`. Clients need one that `client_ca` has signed. Paths are absolute; files are read again when they " +
			"change.",
		examples: `{"cert": "/etc/floodwall/cert.pem", "key": "/etc/floodwall/key.pem", "client_ca": "/etc/floodwall/ca.pem"}`},
	{name: "webhook", value: custom(place.webhook, object(webhookKeys)),
		doc:      "A server that gets warnings, bans, changes and attacks, as JSON by POST.",
		examples: `{"url": "https://hooks.example/floodwall"}`},
	{name: "crowdsec", value: custom(place.crowdSec, crowdSecSchema),
		doc:      "The local API of a CrowdSec whose bans the daemon enters into a dynamic set.",
		examples: `{"url": "http://127.0.0.1:8080", "key_file": "/etc/floodwall/crowdsec.key"}`},
	{name: "suricata", value: custom(place.suricata, suricataSchema),
		doc: "The eve.json of a Suricata whose alerts ban senders.", examples: `"/var/log/suricata/eve.json"`},
}

// sampleTraffic parses the key sample of the daemon, 1/n: the daemon gets one packet in n. It returns n.
func sampleTraffic(text string) (uint32, *flaw) {
	const least = 10 // with a larger share, the samples would cost more than the filter
	n, f := sample(text)
	if f == nil && n < least {
		return 0, want("one in 10 packets or fewer, as in 1/1000", text).hintf("write 1/1000, which is enough for a flood")
	}
	return n, f
}

// needsTLS is the hint when a key of tls is missing.
const needsTLS = "write tls: {cert: /etc/…, key: /etc/…, client_ca: /etc/…}"

var tlsKeys = []key[TLS]{
	{name: "cert", value: into(absolutePath, func(to *TLS) *string { return &to.Cert }),
		doc: "The certificate of the server, PEM.", examples: `"/etc/floodwall/cert.pem"`,
		must: needsTLS},
	{name: "key", value: into(absolutePath, func(to *TLS) *string { return &to.Key }),
		doc: "Its private key, PEM.", examples: `"/etc/floodwall/key.pem"`, must: needsTLS},
	{name: "client_ca", value: into(absolutePath, func(to *TLS) *string { return &to.ClientCA }),
		doc: "The certificates that sign those of clients, PEM.", examples: `"/etc/floodwall/ca.pem"`,
		must: needsTLS},
}

// absolutePath is the form of the absolute path of a file that is opened long after the policy has been read.
var absolutePath = word(text("^/"), readAbsolute)

// tls parses the key tls.
func (p place) tls(to *Daemon, v *node) {
	to.TLS = &TLS{}
	readKeys(p.in("tls"), "tls", v, tlsKeys, to.TLS)
}

// daemon parses the key daemon.
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

// readAbsolute parses a path that must be absolute. The file is read long after the policy, when a copy of the policy may be in another directory.
func readAbsolute(text string) (string, *flaw) {
	if !filepath.IsAbs(text) {
		return "", want("an absolute path", text).hintf("begin it with /")
	}
	return text, nil
}
