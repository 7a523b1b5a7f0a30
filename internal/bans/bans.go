// Package bans decides from samples of packets over a limit whom to ban: the detector behind `over: {ban: …}`. It touches
// no kernel and knows no clock but the one that it is told.
package bans

import (
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/addrs"
)

// What it takes to be banned. One packet over a limit may be an honest client's bad moment; a flood shows itself in
// samples at once.
const (
	enough    = 8                // offences
	within    = 10 * time.Second // of each other
	mostKnown = 1 << 16          // offenders that are remembered: a flood of forged sources must not fill the memory
)

// neighbours is how many offenders within a wider prefix have that banned in their place.
const neighbours = 16

// wider are the lengths to which bans are widened, longest first: what one customer or one site is given (RFC 6177 for
// IPv6).
var wider = map[bool][]int{true: {24}, false: {56, 48}} // by Is4

// Ban is a prefix to ban.
type Ban struct {
	Prefix  netip.Prefix
	Offends int // the offenders that it stands for
}

// Detector counts the offences of one limit. The zero value is not usable; see New.
type Detector struct {
	never     *addrs.Set
	offenders map[netip.Prefix]*offender
	banned    map[netip.Prefix]time.Time // until when
}

// offender is a prefix that exceeded the limit.
type offender struct {
	first time.Time // of the offences that count
	count int
}

// New returns a detector that never bans a prefix with an address of never in it.
func New(never *addrs.Set) *Detector {
	return &Detector{never, map[netip.Prefix]*offender{}, map[netip.Prefix]time.Time{}}
}

// Offence notes that a prefix exceeded the limit, and returns the ban that follows, if one does: of the prefix for a time,
// or of a wider one with many offenders in it.
func (d *Detector) Offence(p netip.Prefix, now time.Time, length time.Duration) (Ban, bool) {
	if d.isBanned(p, now) || d.spared(p) || !d.offends(p, now) {
		return Ban{}, false
	}
	d.banned[p] = now.Add(length)
	for _, bits := range wider[p.Addr().Is4()] {
		if bits >= p.Bits() {
			continue
		}
		wide, _ := p.Addr().Prefix(bits)
		if n := d.inside(wide, now); n >= neighbours && !d.spared(wide) {
			d.banned[wide] = now.Add(length)
			return Ban{wide, n}, true
		}
	}
	return Ban{p, 1}, true
}

// offends counts an offence, and reports whether it was the last that it took.
func (d *Detector) offends(p netip.Prefix, now time.Time) bool {
	o := d.offenders[p]
	if o == nil {
		d.forget(now)
		o = &offender{first: now}
		d.offenders[p] = o
	}
	if now.Sub(o.first) > within {
		*o = offender{first: now}
	}
	if o.count++; o.count < enough {
		return false
	}
	delete(d.offenders, p)
	return true
}

// forget makes room: first of those whose offences are old, then of any, since those who go on offending come back.
func (d *Detector) forget(now time.Time) {
	if len(d.offenders) < mostKnown {
		return
	}
	for p, o := range d.offenders {
		if now.Sub(o.first) > within {
			delete(d.offenders, p)
		}
	}
	for p := range d.offenders {
		if len(d.offenders) < mostKnown/2 {
			return
		}
		delete(d.offenders, p)
	}
}

func (d *Detector) spared(p netip.Prefix) bool {
	var b addrs.Builder
	b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	return d.never.Overlaps(b.Set())
}

// isBanned reports whether a ban of p, or of a prefix around it, holds. Samples of packets that were on their way may
// come after the ban.
func (d *Detector) isBanned(p netip.Prefix, now time.Time) bool {
	for _, bits := range append(slices.Clone(wider[p.Addr().Is4()]), p.Bits()) {
		if bits > p.Bits() {
			continue
		}
		around, _ := p.Addr().Prefix(bits)
		if until, ok := d.banned[around]; ok && now.Before(until) {
			return true
		}
	}
	return false
}

// inside counts the bans that hold within a prefix, and forgets those that have ended.
func (d *Detector) inside(wide netip.Prefix, now time.Time) (n int) {
	for p, until := range d.banned {
		switch {
		case !now.Before(until):
			delete(d.banned, p)
		case wide.Contains(p.Addr()):
			n++
		}
	}
	return n
}
