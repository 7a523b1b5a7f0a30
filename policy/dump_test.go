// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// dump returns a policy as text: one line for each part, with its position.
func dump(p *policy.Policy) string {
	var b strings.Builder
	for _, d := range p.Devices {
		fmt.Fprintf(&b, "%s device %s", at(d.Pos), d.Name)
		if d.XDP != nil {
			fmt.Fprintf(&b, " xdp %+v", *d.XDP)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s default %s\n", at(p.DefaultPos), p.Default)
	if p.Default == policy.Drop && !p.Replies {
		b.WriteString("replies drop\n")
	}
	fmt.Fprintf(&b, "checks %s\n", checks(p.Checks))
	if p.Observed != 0 {
		fmt.Fprintf(&b, "observed %s\n", checks(p.Observed))
	}
	for _, s := range p.Sets {
		fmt.Fprintf(&b, "%s set %s%s\n", at(s.Pos), s.Name, source(s))
	}
	for _, s := range p.Names {
		fmt.Fprintf(&b, "%s names %s %q file=%q\n", at(s.Pos), s.Name, s.Names, s.File)
	}
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "%s rule %s named=%t%s", at(r.Pos), r.Name, r.Named, match(r.Match))
		if not := match(r.Not); not != "" {
			fmt.Fprintf(&b, " not{%s }", not)
		}
		fmt.Fprintf(&b, "%s%s then %s%s\n", overs(" over", r.Over), connections(r.Connections), r.Then, actions(r))
	}
	for _, s := range p.Services {
		fmt.Fprintf(&b, "%s service %s port=%v from=%v", at(s.Pos), s.Name, s.Port, s.From)
		if s.Track != policy.TrackAsIs {
			fmt.Fprintf(&b, " %s", s.Track)
		}
		b.WriteString("\n")
		if s.UDP != nil {
			b.WriteString(udp(s.UDP))
		}
		if s.Guard != nil {
			b.WriteString(guard(s.Guard))
		}
		if s.Syn != nil {
			b.WriteString(syn(s.Syn))
		}
	}
	if p.Never != nil {
		fmt.Fprintf(&b, "never %v\n", p.Never)
	}
	for _, e := range p.Essential {
		fmt.Fprintf(&b, "%s essential %s on=%t off=%t%s\n", at(e.Pos), e.Name, e.On, e.Off, overs(" limit", e.Limits))
	}
	for _, kind := range p.Untracked {
		fmt.Fprintf(&b, "untracked %s\n", map[policy.Traffic]string{policy.Loopback: "loopback", policy.Multicast: "multicast",
			policy.Broadcast: "broadcast", policy.AllTraffic: "all"}[kind])
	}
	for _, e := range p.Exempt {
		fmt.Fprintf(&b, "%s untracked %s\n", at(e.Pos), match(e.Match))
	}
	if d := p.Daemon; d.Listen.IsValid() {
		fmt.Fprintf(&b, "daemon listen=%s tls=%+v sample=%d\n", d.Listen, d.TLS, d.Sample)
	}
	if p.XDP != nil {
		fmt.Fprintf(&b, "xdp %+v\n", *p.XDP)
	}
	if u := p.Daemon.Upstream; u != nil {
		fmt.Fprintf(&b, "upstream %+v\n", *u)
	}
	if d := p.Daemon.Detect; d.On {
		fmt.Fprintf(&b, "detect baseline=%q least=%d quiet=%v sample=%d auto=%+v\n", d.Baseline, d.Least, d.Quiet, p.Daemon.Sample, d.Auto)
	}
	if p.Placement != "" {
		fmt.Fprintf(&b, "placement %s\n", p.Placement)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "%s note: %s\n", at(n.Pos), n.Msg)
	}
	return b.String()
}

func at(p policy.Pos) string { return fmt.Sprintf("%d:%d", p.Line, p.Col) }

// checks lists the names of s.
func checks(s packet.CheckSet) string {
	var names []string
	for c := range packet.NumChecks {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return strings.Join(names, " ")
}

func source(s policy.Set) string {
	text := ""
	if s.Inline != nil {
		text += fmt.Sprintf(" inline=%v", s.Inline)
	}
	if s.File != "" {
		text += " file=" + s.File
	}
	if s.Dynamic != nil {
		text += fmt.Sprintf(" dynamic timeout=%s", s.Dynamic.Timeout)
	}
	if s.Feed != nil {
		text += fmt.Sprintf(" feed=%+v", *s.Feed)
	}
	if s.Geo != nil {
		text += fmt.Sprintf(" geo=%+v", *s.Geo)
	}
	if s.Max != 0 {
		text += fmt.Sprintf(" max=%d", s.Max)
	}
	return text
}

// match lists the keys of m that are not nil.
func match(m policy.Match) string {
	text, v := "", reflect.ValueOf(m)
	for i := range v.NumField() {
		f, name := v.Field(i), strings.ToLower(v.Type().Field(i).Name)
		switch w := f.Interface().(type) {
		case *policy.Payload:
			text += payload(w)
		case *policy.DNS:
			text += dns(w)
		default:
			if !f.IsNil() {
				text += fmt.Sprintf(" %s=%v", name, w)
			}
		}
	}
	return text
}

func payload(p *policy.Payload) (text string) {
	if p == nil {
		return ""
	}
	for _, c := range p.Contains {
		text += fmt.Sprintf(" contains=%q nocase=%t within=%d", c.Text, c.NoCase, c.Within)
	}
	for _, a := range p.At {
		text += fmt.Sprintf(" at=%d header=%t %x/%x", a.Offset, a.Header, a.Value, a.Mask)
	}
	return text
}

func dns(d *policy.DNS) (text string) {
	if d == nil {
		return ""
	}
	text = fmt.Sprintf(" dns types=%v", d.Types)
	for _, n := range d.Names {
		text += fmt.Sprintf(" %s:%q/%q", at(n.Pos), n.Name, n.Set)
	}
	return text
}

// overs returns limits as text. It leaves out fields that are not set.
func overs(what string, all []policy.Over) (text string) {
	for _, o := range all {
		unit := map[bool]string{false: "packets", true: "bits"}[o.Bits]
		text += fmt.Sprintf("%s{%s %d %s in %s, burst %d", what, at(o.Pos), o.Rate, unit, o.Per, o.Burst)
		if o.From != nil {
			text += fmt.Sprintf(" from/%d/%d", o.From.V4, o.From.V6)
		}
		if o.To != nil {
			text += fmt.Sprintf(" to/%d/%d", o.To.V4, o.To.V6)
		}
		if o.Max != 0 {
			text += fmt.Sprintf(" max %d", o.Max)
		}
		if o.Ban != nil {
			text += fmt.Sprintf(" ban %s for %s forgeable=%t", o.Ban.Set, o.Ban.For, o.Ban.Forgeable)
		}
		text += "}"
	}
	return text
}

func connections(c *policy.ConnLimit) string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf(" over{%s %d connections", at(c.Pos), c.Most)
	if c.From != nil {
		text += fmt.Sprintf(" from/%d/%d", c.From.V4, c.From.V6)
	}
	if c.To != nil {
		text += fmt.Sprintf(" to/%d/%d", c.To.V4, c.To.V6)
	}
	if c.Max != 0 {
		text += fmt.Sprintf(" max %d", c.Max)
	}
	return text + "}"
}

func actions(r policy.Rule) (text string) {
	if r.Slip != 0 {
		text += fmt.Sprintf(" slip=%d", r.Slip)
	}
	if r.Sample != 0 {
		text += fmt.Sprintf(" sample=1/%d", r.Sample)
	}
	if r.Observe {
		text += " observe"
	}
	if r.Placement != "" {
		text += " placement=" + string(r.Placement)
	}
	return text
}

func udp(u *policy.UDP) string {
	total := []policy.Over{}
	if u.Total != nil {
		total = append(total, *u.Total)
	}
	return fmt.Sprintf("%s udp %s%s%s%s%s%s observe=%t\n", at(u.Pos), u.Protect, overs(" start", []policy.Over{u.Start}), overs(" stop", []policy.Over{u.Stop}),
		overs(" known", []policy.Over{u.Known}), overs(" limit", u.Limits), overs(" total", total), u.Observe)
}

func guard(g *policy.Guard) string {
	text := fmt.Sprintf("%s  guard verify=%s secret=%q observe=%t types=%v\n", at(g.Pos), g.Verify, g.Secret, g.Observe, g.Types)
	for _, one := range []struct {
		what string
		over *policy.Over
	}{{"total", g.Total}, {"replies", g.Replies}, {"responses", g.Responses}} {
		if one.over != nil {
			text += overs("  "+one.what, []policy.Over{*one.over}) + "\n"
		}
	}
	return text + overs("  limit", g.Limits) + "\n" + overs("  verified", g.Verified) + "\n"
}

func syn(s *policy.Syn) string {
	text := fmt.Sprintf("%s  syn always=%t mode=%d mss=%d wscale=%d flows=%d backends=%v\n",
		at(s.Pos), s.Always, s.Mode, s.MSS, s.WScale, s.Flows, s.Backends)
	for _, one := range []struct {
		what string
		over *policy.Over
	}{{"start", s.Start}, {"stop", s.Stop}, {"total", s.Total}, {"authenticated", s.Authenticated}} {
		if one.over != nil {
			text += overs("  "+one.what, []policy.Over{*one.over}) + "\n"
		}
	}
	if s.Limits != nil {
		text += overs("  limit", s.Limits) + "\n"
	}
	return text
}
