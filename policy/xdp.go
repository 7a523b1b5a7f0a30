// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// XDP says when the program of target xdp runs at XDP, and when at tc.
type XDP struct {
	When  XDPTime       `json:"when"`
	Start uint64        `json:"start"` // a flood begins at this rate of dropped and answered packets, in packets per second
	Calm  time.Duration `json:"calm"`  // a flood is over when the rate has been lower for this time
}

// XDPTime is a time at which the program runs at XDP.
type XDPTime string

// The times.
const (
	XDPAuto    XDPTime = "auto"    // flooded if XDP costs the device's traffic and the daemon runs; otherwise always
	XDPAlways  XDPTime = "always"  // if the device can do so
	XDPFlooded XDPTime = "flooded" // during a flood, and always without the daemon
	XDPNever   XDPTime = "never"   // at tc
)

var xdpWords = words[XDPTime]{{"auto", XDPAuto}, {"always", XDPAlways}, {"flooded", XDPFlooded}, {"never", XDPNever}}

var xdpSchema = define("xdp", anyOf(xdpWords.schema(), object(xdpKeys)).titled("`auto`, `always`, `flooded`, `never`, or `{when, …}`"))

var xdpKeys = []key[XDP]{
	{name: "when", value: into(word(xdpWords.schema(), xdpWords.parse), func(to *XDP) *XDPTime { return &to.When }),
		doc: "`auto`, `always`, `flooded` or `never`.", examples: `"flooded"`, must: "write when: flooded"},
	{name: "start", value: into(word(text("^[1-9][0-9]*/s$"), packetRate("20000/s")), func(to *XDP) *uint64 { return &to.Start }),
		doc: "The rate of dropped and answered packets from which the program runs at XDP.", usual: `"20000/s"`, examples: `"100000/s"`},
	{name: "calm", value: into(word(text("^[0-9]+(ms|s|m|h)$"), readQuiet), func(to *XDP) *time.Duration { return &to.Calm }),
		doc: "The program returns to tc when the rate was below half of `start` for this time.", usual: `"10m"`, examples: `"1m"`},
}

// policyXDP parses the key xdp of the policy.
func (p place) policyXDP(to *Policy, v *node) {
	if x := p.xdp(v); *x != usualXDP() {
		to.XDP = x
	}
}

// xdp parses the key xdp of the policy or of a device.
func (p place) xdp(v *node) *XDP {
	x := usualXDP()
	if v.Kind == yamltree.Word {
		x.When = scalarOf(p, "xdp", v, xdpWords.parse)
	} else {
		p = p.in("xdp")
		readKeys(p, "it", v, xdpKeys, &x)
		if x.When == XDPAlways || x.When == XDPNever {
			p.saysNothing(v, "when: "+string(x.When), "remove it, or write when: flooded", "start", "calm")
		}
	}
	return &x
}

// usualXDP returns the setting of a policy without the key.
func usualXDP() XDP {
	x := defaults(Pos{}, xdpKeys)
	x.When = XDPAuto
	return x
}

// XDPOf returns when the program runs at XDP on a device: the device's own setting, or that of the policy.
func (p *Policy) XDPOf(device string) XDP {
	for _, d := range p.Devices {
		if d.Name == device && d.XDP != nil {
			return *d.XDP
		}
	}
	if p.XDP != nil {
		return *p.XDP
	}
	return usualXDP()
}
