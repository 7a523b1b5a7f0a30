// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// CrowdSec is a local API of CrowdSec. The daemon enforces its decisions. All paths of files are absolute.
type CrowdSec struct {
	URL     string        // https, or http to this host
	KeyFile string        // the file with the API key of a bouncer; "": the daemon authenticates with Cert
	Cert    string        // the daemon's client certificate, in one file with the private key; "": none
	CA      string        // the CA of the server's certificate; "": any CA that the system trusts
	Every   time.Duration // the interval between queries
	Set     string        // the dynamic set that gets the banned addresses
}

// The bounds of the interval between queries.
const (
	crowdSecLeast = time.Second
	crowdSecMost  = time.Hour
)

var crowdSecKeys = []key[CrowdSec]{
	{name: "url", value: into(serverAddress, func(to *CrowdSec) *string { return &to.URL }),
		doc: "The address of the local API. `http` is for addresses of this host alone.", examples: `"http://127.0.0.1:8080"`, must: crowdSecExample},
	{name: "key_file", value: into(absolutePath, func(to *CrowdSec) *string { return &to.KeyFile }),
		doc:      "A file with the key that `cscli bouncers add floodwall` prints. Only root may read the file. It need not be said beside `cert`.",
		examples: `"/etc/floodwall/crowdsec.key"`},
	{name: "cert", value: into(absolutePath, func(to *CrowdSec) *string { return &to.Cert }),
		doc:      "A file with the certificate that the daemon shows to the server, and its private key, PEM. Only root may read the file.",
		examples: `"/etc/floodwall/crowdsec.pem"`},
	{name: "ca", value: into(absolutePath, func(to *CrowdSec) *string { return &to.CA }),
		doc:      "The certificates that sign that of the server, PEM. Without it, those of the system count.",
		examples: `"/etc/floodwall/crowdsec-ca.pem"`},
	{name: "every", value: into(word(text(""), crowdSecTime), func(to *CrowdSec) *time.Duration { return &to.Every }),
		doc: "How often the local API is asked for changes, from 1s to 1h.", usual: `"10s"`, examples: `"30s"`},
	{name: "set", value: into(dynamicSetName, func(to *CrowdSec) *string { return &to.Set }),
		doc: "The dynamic set. It need not be said when there is one.", examples: `"bans"`},
}

// Suricata is Suricata's log file eve.json. Alerts in it cause bans. The path is absolute.
type Suricata struct {
	Eve       string        // the file
	For       time.Duration // the duration of a ban, from the time of the alert
	Set       string        // the dynamic set that gets the banned addresses
	All       bool          // alerts of rules that do not block also cause bans; needed for an IDS, which has no other rules
	Forgeable bool          // an alert causes a ban even if the sender has not proved its address
}

// suricataAlerts are the values of alerts. The meaning of each is whether all alerts cause bans.
var suricataAlerts = words[bool]{{"blocked", false}, {"all", true}}

var suricataKeys = []key[Suricata]{
	{name: "file", value: into(absolutePath, func(to *Suricata) *string { return &to.Eve }),
		doc: "The eve.json: an absolute path of a file that only its owner and group may write.", examples: `"/var/log/suricata/eve.json"`,
		must: "write suricata: /var/log/suricata/eve.json"},
	{name: "for", value: into(banDuration, func(to *Suricata) *time.Duration { return &to.For }),
		doc: "How long an alert bans, from the time of the alert on.", usual: `"1h"`, examples: `"10m"`},
	{name: "set", value: into(dynamicSetName, func(to *Suricata) *string { return &to.Set }),
		doc: "The dynamic set. It need not be said when there is one.", examples: `"bans"`},
	{name: "alerts", value: into(suricataAlerts.form(), func(to *Suricata) *bool { return &to.All }),
		doc:   "`blocked` takes alerts of rules that drop or reject. `all` takes every alert: without it, Suricata as an IDS bans nobody.",
		usual: `"blocked"`, examples: `"all"`},
	{name: "trust", value: into(trustForm, func(to *Suricata) *bool { return &to.Forgeable }),
		doc: "`forgeable` takes alerts of all packets, so anybody can have any address banned. When left out: only those of rules that match a " +
			"request or an answer in a TCP connection (`tx_id`), which proves the sender.", examples: `"forgeable"`},
}

var suricataSchema = anyOf(absolutePath.schema, object(suricataKeys)).titled("path, or `{file, for, set, alerts, trust}`")

// suricata parses the key suricata: a file alone, or a mapping.
func (p place) suricata(d *Daemon, v *node) {
	to := new(defaults(v.Pos, suricataKeys))
	d.Suricata = to
	p = p.in("suricata")
	if v.Kind == yamltree.Word {
		to.Eve = scalarOf(p, "file", v, readAbsolute)
	} else {
		seen := readKeys(p, "suricata", v, suricataKeys, to)
		if seen == nil || seen["set"] {
			return
		}
	}
	to.Set = p.onlyDynamic(v, "suricata", "suricata: {set: %s, …}")
}

// Webhook is a server that gets the daemon's events.
type Webhook struct {
	URL        string // https, or http to this host
	SecretFile string // the file with the key of signatures; "": events are not signed
	Addresses  bool   // events contain addresses
}

var webhookKeys = []key[Webhook]{
	{name: "url", value: into(serverAddress, func(to *Webhook) *string { return &to.URL }),
		doc: "Its address. `http` is for addresses of this host alone. Redirects are not followed.", examples: `"https://hooks.example/floodwall"`,
		must: "write webhook: {url: https://host.example/hook}"},
	{name: "secret_file", value: into(absolutePath, func(to *Webhook) *string { return &to.SecretFile }),
		doc: "A file with a secret that signs each request. Only root may read the file.", examples: `"/etc/floodwall/webhook.secret"`},
	{name: "addresses", value: into(yesOrNo, func(to *Webhook) *bool { return &to.Addresses }),
		doc: "Whether the server is told addresses. Without it `[address]` stands in their place.", usual: `"off"`, examples: `"on"`},
}

// webhook parses the key webhook.
func (p place) webhook(d *Daemon, v *node) {
	d.Webhook = new(Webhook)
	readKeys(p.in("webhook"), "webhook", v, webhookKeys, d.Webhook)
}

const crowdSecExample = "write crowdsec: {url: http://127.0.0.1:8080, key_file: /etc/floodwall/crowdsec.key}"

var crowdSecSchema = func() *schema {
	s := object(crowdSecKeys).titled("mapping")
	s.AnyOf = []*schema{{Required: []string{"key_file"}}, {Required: []string{"cert"}}}
	return s
}()

// crowdSec parses the key crowdsec.
func (p place) crowdSec(d *Daemon, v *node) {
	to := new(defaults(v.Pos, crowdSecKeys))
	d.CrowdSec = to
	p = p.in("crowdsec")
	seen := readKeys(p, "crowdsec", v, crowdSecKeys, to)
	if !seen["cert"] {
		p.require(v, seen, "key_file", crowdSecExample)
	}
	if seen != nil && !seen["set"] {
		to.Set = p.onlyDynamic(v, "crowdsec", "crowdsec: {set: %s, …}")
	}
}

// onlyDynamic returns the name of the policy's dynamic set if the policy has exactly one. Otherwise it reports a mistake, and what names the key in
// the message. example is a format string with a verb for the name of the set.
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

var serverAddress = word(text("^https?://"), serverURL)

// serverURL parses the URL of a server to which Floodwall sends secrets. The connection must be encrypted unless the server is on this host.
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
