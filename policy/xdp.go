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
	XDPAuto    XDPTime = "auto" // always, if the device can do so
	XDPAlways  XDPTime = "always"
	XDPFlooded XDPTime = "flooded" // during a flood, if the daemon runs; otherwise at tc
	XDPNever   XDPTime = "never"   // at tc
)

var xdpWords = words[XDPTime]{{"auto", XDPAuto}, {"always", XDPAlways}, {"flooded", XDPFlooded}, {"never", XDPNever}}

var xdpSchema = define("xdp", anyOf(xdpWords.schema(), object(xdpKeys)).titled("`auto`, `always`, `flooded`, `never`, or `{when, …}`"))

var xdpKeys = []key[XDP]{
	{name: "when", value: into(word(xdpWords.schema(), xdpWords.parse), func(to *XDP) *XDPTime { return &to.When }),
		doc: "`auto`, `always`, `flooded` or `never`.", examples: `"flooded"`, must: "write when: flooded"},
	{name: "start", value: into(word(text("^[1-9][0-9]*/s$"), readLeast), func(to *XDP) *uint64 { return &to.Start }),
		doc: "The rate of dropped and answered packets from which the program runs at XDP.", usual: `"20000/s"`, examples: `"100000/s"`},
	{name: "calm", value: into(word(text("^[0-9]+(ms|s|m|h)$"), readQuiet), func(to *XDP) *time.Duration { return &to.Calm }),
		doc: "The program returns to tc when the rate has been below half of `start` for this time.", usual: `"10m"`, examples: `"1m"`},
}

// xdp parses the key xdp.
func (p place) xdp(to *Policy, v *node) {
	x := defaults(v.Pos, xdpKeys)
	if v.Kind == yamltree.Word {
		x.When = scalarOf(p, "xdp", v, xdpWords.parse)
	} else {
		readKeys(p.in("xdp"), "it", v, xdpKeys, &x)
	}
	if x.When != XDPAuto {
		to.XDP = &x
	}
}
