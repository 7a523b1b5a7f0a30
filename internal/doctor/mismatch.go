// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Mismatch is a service behind this host whose announced options differ from its servers' options.
type Mismatch struct {
	Service string
	Policy  string           // the path of the policy file
	Servers []netip.AddrPort // the servers that have answered
	Differs []string         // texts on the announced and the actual options
	Broken  []Kind           // options that a server does not support as announced: connections to this server fail or stall
}

// Kind is the kind of an option that differs between a SYN-ACK and the servers.
type Kind string

// The kinds of options.
const (
	KindMSS    Kind = "mss"
	KindWScale Kind = "wscale" // the announced scale is too large, or the server has none
	KindOption Kind = "option" // SACK, timestamps or ECN
)

// Mismatches probes the servers behind this host again, and compares their options with the announced ones. Servers that do not answer are left out.
func Mismatches(ctx context.Context, in control.Instance) (found []Mismatch, err error) {
	m, err := in.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range m.Routed {
		i := slices.IndexFunc(m.Protections, func(e manifest.Protection) bool { return e.Service == b.Service })
		if i < 0 {
			continue
		}
		list, err := facts.ServersOf(b.Ports, b.Backends)
		if err != nil {
			return nil, err
		}
		survey := facts.SurveyHost(ctx, list)
		if differs := mismatch(&m.Protections[i], &b, survey); differs != nil {
			differs.Policy = m.File
			found = append(found, *differs)
		}
	}
	return found, nil
}

// mismatch compares the announced options with the options of the servers. It returns nil when they are the same.
func mismatch(e *manifest.Protection, b *manifest.Routed, s facts.SurveyServers) *Mismatch {
	if s.Answered == nil {
		return nil
	}
	var now ir.Handshake
	manifest.Announce(&ir.Protection{MSS: b.MSS, WScale: b.WScale}, &now, s)
	found := Mismatch{Service: e.Service, Servers: s.Answered}
	differ := func(k Kind, broken bool, format string, args ...any) {
		found.Differs = append(found.Differs, fmt.Sprintf(format, args...))
		if broken && !slices.Contains(found.Broken, k) {
			found.Broken = append(found.Broken, k)
		}
	}
	for family, mss := range now.MSS {
		if s.MSS[family] > 0 && e.MSS[family] != mss {
			differ(KindMSS, e.MSS[family] > mss, "MSS %d of IPv%d is announced, %d is theirs", e.MSS[family], 4+2*family, mss)
		}
	}
	for bit, name := range manifest.OptionNames {
		offered, has := slices.Contains(e.Options, name), now.Options>>bit&1 == 1
		if offered != has {
			differ(kindOf(ir.TCPOptions(1<<bit)), offered, map[bool]string{true: "%s is offered, and they lack it", false: "%s is not offered, and they have it"}[offered], name)
		}
	}
	if now.Options&ir.WindowScaling != 0 && e.WScale >= 0 && e.WScale != int(now.WScale) {
		differ(KindWScale, e.WScale > int(now.WScale), "window scale %d is announced, %d is theirs", e.WScale, now.WScale)
	}
	if found.Differs == nil {
		return nil
	}
	return &found
}

// kindOf returns the kind of an option.
func kindOf(o ir.TCPOptions) Kind {
	if o == ir.WindowScaling {
		return KindWScale
	}
	return KindOption
}
