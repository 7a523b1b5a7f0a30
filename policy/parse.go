// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// Stdin is the name of a policy that was read from standard input. Its relative file names are relative to the working directory.
const Stdin = "<stdin>"

// Read reads the policy in file. The error has the type Errors if the file can be read but has mistakes.
func Read(file string) (*Policy, error) {
	src, err := Source(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src)
}

// Source reads the text of the policy in file.
func Source(file string) ([]byte, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		remedy := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			remedy = "name the file of your policy; `floodwall on` or `floodwall init FILE` writes a first one"
		case errors.Is(err, syscall.EISDIR):
			remedy = "name the file, not its directory"
		}
		return nil, wording.WithHint(fmt.Errorf("reading policy: %w", err), remedy)
	}
	return src, nil
}

// Parse parses the policy in src. file is its name, for messages. It reports every mistake, not only the first: the
// error is always of type Errors. A file that is not YAML gives one mistake, because the rest cannot be parsed.
func Parse(file string, src []byte) (*Policy, error) {
	p, err := ParseSound(file, src)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ParseSound is Parse, but it returns a policy in addition to the error: the policy without its wrong rules and services, and with empty sets in
// place of its wrong sets. Such a policy is useful only for finding more mistakes. It is nil if nothing could be parsed.
func ParseSound(file string, src []byte) (*Policy, error) {
	r := newReader(file)
	p := place{r: r}
	policy := Policy{File: file, Checks: packet.Standard.Checks()}
	doc, mistakes := yamltree.Read(src)
	for _, m := range mistakes {
		p.errorf(m.Pos, "%s", m.Msg).Hint = m.Hint
	}
	if doc != nil {
		r.top(p, doc, &policy)
	}
	if doc == nil {
		return nil, r.errs.sorted()
	}
	if len(r.errs) > 0 {
		r.leaveOut(&policy)
		return &policy, r.errs.sorted()
	}
	policy.Notes = notes(&policy)
	return &policy, nil
}

// The tree that the reader reads.
type (
	node = yamltree.Node
	pair = yamltree.Pair
)

// reader is the state of the parser.
type reader struct {
	file    string
	errs    Errors
	sets    map[string]setKind // the policy's sets, collected before the first rule is parsed
	given   map[string]bool    // names that the policy gives to rules and services, collected before any name is generated
	reasons map[string]Pos     // names of rules and services so far; each name is a counter

	inEntry map[string]bool // keys of rules and services

	unsound map[Pos]bool // entries of lists that have mistakes

	patterns        map[string]bool // the different patterns so far, over all rules
	tooManyPatterns bool            // too many patterns have been reported
}

func newReader(file string) *reader {
	r := &reader{
		file: file, sets: map[string]setKind{}, given: map[string]bool{}, reasons: map[string]Pos{},
		patterns: map[string]bool{}, inEntry: map[string]bool{}, unsound: map[Pos]bool{},
	}
	for _, key := range append(names(ruleKeys), names(serviceKeys)...) {
		r.inEntry[key] = key != "name"
	}
	return r
}

// leaveOut removes the rules and services with mistakes from a policy.
func (r *reader) leaveOut(p *Policy) {
	p.Rules = slices.DeleteFunc(p.Rules, func(rule Rule) bool { return r.unsound[rule.Pos] })
	p.Services = slices.DeleteFunc(p.Services, func(s Service) bool { return r.unsound[s.Pos] })
}

// place is a position of the parser in the policy. what is the beginning of its messages, such as `rule "web": `.
type place struct {
	r    *reader
	what string
}

// in returns a place inside p. Messages name p first, and then the place.
func (p place) in(format string, args ...any) place {
	return place{p.r, p.what + fmt.Sprintf(format, args...) + ": "}
}

// errorf reports a mistake. The caller may set the Hint of the result.
func (p place) errorf(at Pos, format string, args ...any) *Error {
	e := &Error{File: p.r.file, Line: at.Line, Col: at.Col, Msg: p.what + fmt.Sprintf(format, args...)}
	p.r.errs = append(p.r.errs, e)
	return e
}

// flawed reports the flaw f in the value of key.
func (p place) flawed(at Pos, key string, f *flaw) {
	p.errorf(at, "%s %s", key, f.msg).Hint = f.hint
}

// topKeys are the keys of a policy.
var topKeys = []key[Policy]{
	{name: "devices", value: custom(place.devices, devicesSchema),
		doc: "The network devices where packets from outside arrive.", examples: `"eth0", ["eth0", {"name": "eth1", "xdp": "never"}]`,
		must: "name the devices that packets come in from: devices: [eth0]"},
	{name: "default", value: custom(place.byDefault, verdictWords.schema()),
		doc: "The verdict for a packet that no rule and no service decided.", usual: `"pass"`, examples: `"drop"`},
	{name: "replies", value: into(repliesWords.form(), func(to *Policy) *bool { return &to.Replies }),
		doc: "Whether packets pass that answer a packet which left through a device of the policy. They do not fail `bogon-source` and " +
			"`reflector-source` either. When left out: `pass` beside `default: drop`, else `drop`.", examples: `"drop"`},
	{name: "checks", value: custom(place.checks, anyOf(profileWords.schema(), checksSchema)),
		doc: "Checks that drop broken packets before any rule: a profile, or single checks that change one.", usual: `"standard"`,
		examples: `"strict", {"profile": "standard", "own-source": "on"}`},
	{name: "sets", value: custom(place.sets, setsSchema),
		doc:      "Sets of addresses, and of domain names. Rules and services name a set as `$NAME`.",
		examples: `{"office": ["203.0.113.0/24"]}`},
	{name: "rules", value: custom(place.rules, entriesSchema("rule", ruleKeys)),
		doc:      "The rules, in order.",
		examples: `[{"name": "listed", "from": "198.51.100.0/24", "then": "drop"}]`},
	{name: "services", value: custom(place.services, entriesSchema("service", serviceKeys)),
		doc: "The ports that the host serves.", examples: `[{"name": "web", "port": ["tcp/80", "tcp/443"]}]`},
	{name: "never", value: custom(place.spared, listOf(endSchema)),
		doc: "Addresses that no limit, program, fleet, fetched list, FlowSpec route or temporary rule may ban or drop. A `$SET` must have a " +
			"fixed content.", examples: `["$office"]`},
	{name: "essential", value: custom(place.essential, object(essentials).titled("mapping")),
		doc: "Changes the rules that `default: drop` adds for traffic that no host can do without: `off` removes a rule, `limit` replaces " +
			"its limits, `on` has its usual limits.", examples: `{"icmp-errors": {"limit": "5000/s"}}`},
	{name: "untracked", value: custom(place.untracked, listOf(untrackedSchema)),
		doc: "Traffic that connection tracking never sees, beside services with `track: false`. `loopback` is the traffic of the host with " +
			"itself, `multicast` and `broadcast` all to such an address, `all` everything. Match keys exempt the other direction, too: " +
			"`{from: $trusted}` is all from and to these addresses, `{port: tcp/179}` all from and to port 179. A set in it must have a fixed " +
			"content.",
		examples: `"loopback", ["multicast", {"proto": "ospf"}, {"from": "192.0.2.2", "port": "tcp/179"}], "all"`},
	{name: "boot", value: into(bootWords.form(), func(to *Policy) *bool { return &to.BootClosed }),
		doc: "What holds at boot when no saved policy can be loaded, and at devices that appear later until their policy is in force. " +
			"`open` drops nothing. `closed` passes essential packets, answers to the host's own connections, and SSH from where the " +
			"policy passes it. When left out: `closed` with `default: drop`, otherwise `open`.", examples: `"closed"`},
	{name: "daemon", value: custom(place.daemon, object(daemonKeys)),
		doc:      "What `floodwall daemon` does while this policy runs.",
		examples: `{"listen": "127.0.0.1:9810"}`},
	{name: "detect", value: custom(place.detect, object(detectKeys)),
		doc: "`floodwall daemon` looks for attacks, and suggests rules (`floodwall attacks`). It changes nothing without `auto`. Unless " +
			"`daemon` says otherwise, it takes samples, of one in 100 packets at first.", examples: `{"baseline": "learn"}`},
	{name: "upstream", value: custom(place.upstream, object(upstreamKeys)),
		doc:      "The routers with which `floodwall-bgp` speaks BGP, and what may be announced to them so that they drop an attack.",
		examples: `{"as": 64500, "router_id": "192.0.2.1", "announce": "192.0.2.0/24", "peers": [{"address": "192.0.2.254", "as": 64501}]}`},
	{name: "placement", value: into(placementForm, func(to *Policy) *Placement { return &to.Placement }),
		doc: "The stage where a rule runs: `auto` the one with the least measured cost, `earliest` the first possible one, the name of a " +
			"stage not before it. Placement changes no verdict.", usual: `"auto"`, examples: `"earliest"`},
	{name: "xdp", value: custom(place.policyXDP, xdpSchema),
		doc: "When the program of target xdp runs at XDP, and not at tc, where it takes no offload from the device: `always`, only while a " +
			"flood lasts (`flooded`), or `never`. `auto`: `flooded` on devices whose traffic XDP costs offloads, else `always`. `apply " +
			"--mode` comes first. A device of `devices` can have an `xdp` of its own.", usual: `"auto"`, examples: `"flooded", {"when": "flooded", "calm": "1m"}`},
}

func (r *reader) top(p place, doc *node, to *Policy) {
	if sets := doc.Get("sets"); sets != nil {
		for _, s := range sets.Pairs {
			r.sets[s.Key] = kindOf(s.Value)
		}
	}
	for _, key := range []string{"rules", "services"} {
		if v := doc.Get(key); v != nil {
			r.noteNames(v.Items)
		}
	}
	seen := readKeys(p, "a policy", doc, topKeys, to)
	if !seen["boot"] {
		to.BootClosed = to.Default == Drop
	}
	to.Replies = to.Replies || to.Default == Drop && !seen["replies"]
	p.untrackedServices(to)
	p.untrackedConnections(to)
	if d := &to.Daemon; d.Detect.On { // with a fixed share, an attack on a small service would give too few samples
		d.Sample, d.Adapts = cmp.Or(d.Sample, firstSample), true
	}
	if u := to.Daemon.Upstream; u != nil && u.Auto != StepNone && !to.Daemon.Detect.On && !seen["detect"] {
		p.errorf(doc.Get("upstream").Pos, "upstream: auto: %s needs `detect`, which sees attacks", u.Auto).Hint = "add detect: {baseline: learn}"
	}
}
