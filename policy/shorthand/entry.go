// SPDX-License-Identifier: Apache-2.0

package shorthand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
)

// limitKeys are the keys of a rule that limits connections: six at once of each address, and then one in five seconds. That is ufw's limit of six in
// 30 seconds. A SYN begins a connection, so the rule needs no connection tracking, and packets of open connections do not count. Without max, the
// table would hold three million prefixes.
var limitKeys = []string{`flags: "syn/fin,syn,rst,ack"`, "over: {rate: 12/min, per: from, burst: 6, max: 100000}"}

// match returns the keys of the packets.
func (r *Request) match() (keys []string) {
	add := func(key string, words ...string) {
		var list []string
		for _, w := range words {
			if strings.HasSuffix(w, ":") {
				w = `"` + w + `"` // YAML would take the colon for the end of a key
			}
			list = append(list, w)
		}
		switch {
		case len(list) == 1 && list[0] != "":
			keys = append(keys, key+": "+list[0])
		case len(list) > 1:
			keys = append(keys, key+": ["+strings.Join(list, ", ")+"]")
		}
	}
	if r.serves() {
		add("port", r.Port...)
		add("from", r.From)
		return keys
	}
	add("from", r.From)
	add("to", r.To)
	proto := r.Proto
	if r.Verb == Limit && r.Port == nil && r.SPort == nil {
		proto = "tcp"
	}
	add("proto", proto)
	add("sport", r.SPort...)
	add("port", r.Port...)
	return keys
}

// serves reports whether the entry is a service: a service has ports and sources, and no other keys.
func (r *Request) serves() bool {
	return r.Verb == Allow && r.Port != nil && r.To == "" && r.SPort == nil
}

// Entry returns the entry that the request adds to a policy, and the list to which it belongs.
func (r *Request) Entry(p *policy.Policy) (list string, e edit.Entry, err error) {
	if err := r.onDevice(p); err != nil {
		return "", e, err
	}
	list = edit.Rules
	keys := r.match()
	switch r.Verb {
	case Allow:
		if r.serves() {
			list = edit.Services
		} else {
			keys = append(keys, "then: pass")
		}
	case Limit:
		keys = append(append(keys, limitKeys...), "then: drop")
	case Reject:
		keys = append(keys, "then: reject")
	default:
		keys = append(keys, "then: drop")
	}
	name := r.Name
	if old := Named(p, name); old != nil && name != "" {
		return "", e, wording.Errorf("choose another name", "the name %s is taken by an entry of %s, line %d", name, old.List, old.Pos.Line)
	}
	if name == "" {
		name = r.freeName(p)
	}
	return list, edit.Entry{Keys: append([]string{"name: " + name}, keys...), Behind: r.Comment}, nil
}

// onDevice returns an error unless a rule of the policy, which holds on all its devices, means the device of the request.
func (r *Request) onDevice(p *policy.Policy) error {
	devices := p.DeviceNames()
	switch {
	case r.Device == "" || len(devices) == 1 && devices[0] == r.Device:
		return nil
	case !slices.Contains(devices, r.Device):
		return wording.Errorf(fmt.Sprintf("packets that come in there pass; add it to devices: [%s]", strings.Join(append(devices, r.Device), ", ")),
			"on %s: the policy does not filter this device", r.Device)
	}
	return wording.Errorf("leave `on` out, and name the network behind the device by from or to",
		"on %s: a rule holds on all devices of the policy, which are %s", r.Device, strings.Join(devices, ", "))
}

const digits = "0123456789"

// portProto are the protocols that a port can have in front of it.
var portProto = map[string]bool{"tcp": true, "udp": true}

// longestName is the maximum length of a name that is made.
const longestName = 40

// freeName returns a name for the entry that no other one has.
func (r *Request) freeName(p *policy.Policy) string {
	var parts []string
	if r.Verb != Allow {
		parts = append(parts, string(r.Verb))
	}
	parts = append(append(parts, r.Port...), r.SPort...)
	if r.Proto != "" {
		parts = append(parts, r.Proto)
	}
	if r.From != "" && !r.serves() {
		parts = append(parts, "from", r.From)
	}
	if r.To != "" {
		parts = append(parts, "to", r.To)
	}
	made := ""
	for _, part := range parts {
		if proto, port, ok := strings.Cut(part, "/"); ok && portProto[proto] && !strings.ContainsAny(port[:1], digits) {
			part = port // the name says the protocol
		}
		part = strings.Trim(strings.NewReplacer("/", "-", ":", "-", "$", "").Replace(part), "-")
		if made == "" {
			made = part
		} else if len(made)+1+len(part) <= longestName {
			made += "-" + part
		}
	}
	if strings.ContainsAny(made[:1], digits) {
		made = "port-" + made
	}
	name := made
	for n := 2; Named(p, name) != nil; n++ {
		name = fmt.Sprintf("%s-%d", made, n)
	}
	return name
}
