package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// CrowdSec is a local API of CrowdSec whose decisions are enforced. Files have absolute paths.
type CrowdSec struct {
	URL     string        // https, or http to this host
	KeyFile string        // the key of a bouncer; "": it shows a certificate
	Cert    string        // its certificate as a client, with the private key of that; "": none
	CA      string        // who signs the server's certificate; "": one that the system knows
	Every   time.Duration // how often it is asked
	Set     string        // the dynamic set
}

// How often CrowdSec is asked.
const (
	crowdSecEvery = 10 * time.Second
	crowdSecLeast = time.Second
	crowdSecMost  = time.Hour
)

var crowdSecKeys = []key[CrowdSec]{
	{"url", func(p place, to *CrowdSec, v *node) { to.URL = scalarOf(p, "url", v, serverURL) }},
	{"key_file", func(p place, to *CrowdSec, v *node) { to.KeyFile = scalarOf(p, "key_file", v, readAbsolute) }},
	{"cert", func(p place, to *CrowdSec, v *node) { to.Cert = scalarOf(p, "cert", v, readAbsolute) }},
	{"ca", func(p place, to *CrowdSec, v *node) { to.CA = scalarOf(p, "ca", v, readAbsolute) }},
	{"every", func(p place, to *CrowdSec, v *node) { to.Every = scalarOf(p, "every", v, crowdSecTime) }},
	{"set", func(p place, to *CrowdSec, v *node) { to.Set = scalarOf(p, "set", v, p.r.banSet) }},
}

// Suricata is an eve.json whose alerts ban. Its path is absolute.
type Suricata struct {
	Eve       string        // the file
	For       time.Duration // how long, from the time of the alert on
	Set       string        // the dynamic set
	All       bool          // alerts of rules that block nothing ban, too: those of Suricata as an IDS
	Forgeable bool          // alerts ban whose sender has not proved its address
}

// suricataFor is how long an alert bans when the policy does not say it.
const suricataFor = time.Hour

// suricataAlerts are which alerts ban.
var suricataAlerts = map[string]bool{"blocked": false, "all": true}

var suricataKeys = []key[Suricata]{
	{"file", func(p place, to *Suricata, v *node) { to.Eve = scalarOf(p, "file", v, readAbsolute) }},
	{"for", func(p place, to *Suricata, v *node) { to.For = scalarOf(p, "for", v, banTime) }},
	{"set", func(p place, to *Suricata, v *node) { to.Set = scalarOf(p, "set", v, p.r.banSet) }},
	{"alerts", func(p place, to *Suricata, v *node) { to.All = scalarOf(p, "alerts", v, choice(suricataAlerts)) }},
	{"trust", func(p place, to *Suricata, v *node) { to.Forgeable = scalarOf(p, "trust", v, readTrust) }},
}

// suricata reads whose alerts ban: a file alone, or a mapping.
func (p place) suricata(v *node) *Suricata {
	to := &Suricata{For: suricataFor}
	p = p.in("suricata")
	if v.Kind == yamltree.Word {
		to.Eve = scalarOf(p, "file", v, readAbsolute)
	} else {
		seen := readKeys(p, "suricata", v, suricataKeys, to)
		p.require(v, seen, "file", "write suricata: /var/log/suricata/eve.json")
		if seen == nil || seen["set"] {
			return to
		}
	}
	to.Set = p.onlyDynamic(v, "suricata", "suricata: {set: %s, …}")
	return to
}

// Webhook is a server that is told what the daemon does.
type Webhook struct {
	URL        string // https, or http to this host
	SecretFile string // the key of signatures; "": there are none
	Addresses  bool   // it is told addresses, too
}

var webhookKeys = []key[Webhook]{
	{"url", func(p place, to *Webhook, v *node) { to.URL = scalarOf(p, "url", v, serverURL) }},
	{"secret_file", func(p place, to *Webhook, v *node) { to.SecretFile = scalarOf(p, "secret_file", v, readAbsolute) }},
	{"addresses", func(p place, to *Webhook, v *node) { to.Addresses = scalarOf(p, "addresses", v, choice(switches)) }},
}

// webhook reads who is told what the daemon does.
func (p place) webhook(v *node) *Webhook {
	to := new(Webhook)
	p = p.in("webhook")
	seen := readKeys(p, "webhook", v, webhookKeys, to)
	p.require(v, seen, "url", "write webhook: {url: https://host.example/hook}")
	return to
}

// crowdSec reads whose decisions are enforced.
func (p place) crowdSec(v *node) *CrowdSec {
	to := &CrowdSec{Every: crowdSecEvery}
	p = p.in("crowdsec")
	seen := readKeys(p, "crowdsec", v, crowdSecKeys, to)
	const example = "write crowdsec: {url: http://127.0.0.1:8080, key_file: /etc/floodwall/crowdsec.key}"
	p.require(v, seen, "url", example)
	if !seen["cert"] {
		p.require(v, seen, "key_file", example)
	}
	if seen != nil && !seen["set"] {
		to.Set = p.onlyDynamic(v, "crowdsec", "crowdsec: {set: %s, …}")
	}
	return to
}

// onlyDynamic is the dynamic set of a policy that has one. Without one, or with several, what needs it is reported, with an example
// that has a verb for the set.
func (p place) onlyDynamic(v *node, what, example string) string {
	switch dynamic := p.r.setsOf(dynamicSet); len(dynamic) {
	case 0:
		p.errorf(v.Pos, "%s needs a dynamic set to put offenders into", what).Hint =
			"declare one, sets: {bans: {dynamic: true, max: 100000}}, and a rule that drops it: {from: $bans, then: drop}"
	case 1:
		return dynamic[0]
	default:
		p.errorf(v.Pos, "%s must say into which of the dynamic sets %s", what, wording.Either(dynamic)).Hint = "write " + fmt.Sprintf(example, dynamic[0])
	}
	return ""
}

func crowdSecTime(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	if f == nil && (d < crowdSecLeast || d > crowdSecMost) {
		f = want("from 1s to 1h", text).hintf("write 10s")
	}
	return d, f
}

// serverURL reads the address of a server that is told secrets: on the way nobody may read them.
func serverURL(text string) (string, *flaw) {
	const example = "write https://host.example/, or http:// with an address of this host"
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", want("an address that begins with https://", text).hintf(example)
	}
	if u.User != nil || u.Fragment != "" {
		return "", want("an address without a password and a fragment", text).hintf("keep secrets in a file")
	}
	if host, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !host.IsLoopback()) {
		return "", want("https:// for another host than this one, since anybody on the way can read http", text).hintf(example)
	}
	return text, nil
}
