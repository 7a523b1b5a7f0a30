// This file decides which prefixes to ban, from reports of packets over a limit: the detector behind `over: {ban: …}`. It uses no
// kernel, and no clock but the time of its arguments.

package ban

import (
	"iter"
	"maps"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// The offences that lead to a ban. A single packet over a limit may come from an honest client; the samples of a flood have many at once.
const (
	enough    = 8                // offences
	within    = 10 * time.Second // of each other
	mostKnown = 1 << 16          // offenders that are remembered: a flood of forged sources must not fill the memory,
	mostWide  = 1 << 15          // and so many wider prefixes with who offended in them
)

const (
	inFlight   = 10 * time.Second // after a ban, offences are those of packets that were on their way
	sayAgain   = time.Minute      // after which a ban that is entered again is news
	maxAllowed = 100              // offenders of which it is told that they are on the allowlist
)

// neighbours is the number of offenders within a wider prefix from which on the wider prefix is banned in their place.
const neighbours = 16

// wider are the lengths to which bans are widened, longest first: what one customer or one site is given (RFC 6177 for
// IPv6).
var wider = map[bool][]int{true: {24}, false: {56, 48}} // by Is4

// Verdict is a prefix to ban.
type Verdict struct {
	Prefix  netip.Prefix
	Offends int  // the offenders that it stands for; of one that is widened twice, the prefixes with offenders
	Again   bool // it was banned less than a minute ago, and offends all the same: a rule decides before the set is asked
}

// Detector counts the offences of one limit. The zero value is not usable; see New.
type Detector struct {
	// Allowed, unless it is nil, is told once of an offender that is not banned, with a prefix around it or in it that never
	// is; of the first 100 of them.
	Allowed func(p, never netip.Prefix)

	never     *addrs.Set
	offenders map[netip.Prefix]*offender
	banned    map[netip.Prefix]time.Time                  // until when that is believed: somebody may lift the ban
	told      map[netip.Prefix]time.Time                  // until when a ban is no news
	reported  map[netip.Prefix]bool                       // that Allowed was told of
	inside    map[netip.Prefix]map[netip.Prefix]time.Time // of a wider prefix, what offended in it, and until when that counts
	swept     time.Time
}

// offender is a prefix that exceeded the limit.
type offender struct {
	first time.Time // of the offences that count
	count int
}

// NewDetector returns a detector that never bans a prefix with an address of never in it.
func NewDetector(never *addrs.Set) *Detector {
	return &Detector{
		never: never, offenders: map[netip.Prefix]*offender{}, banned: map[netip.Prefix]time.Time{},
		told: map[netip.Prefix]time.Time{}, reported: map[netip.Prefix]bool{},
		inside: map[netip.Prefix]map[netip.Prefix]time.Time{},
	}
}

// SetAllowlist replaces the addresses that are never banned.
func (d *Detector) SetAllowlist(never *addrs.Set) { d.never = never }

// Offence records that a prefix exceeded the limit, and returns the ban that follows, if any: of the prefix for a time, or of a wider one
// with many offenders in it.
func (d *Detector) Offence(p netip.Prefix, now time.Time, length time.Duration) (Verdict, bool) {
	d.sweep(now)
	if d.isBanned(p, now) || !d.offends(p, now) {
		return Verdict{}, false
	}
	if d.isAllowed(p) {
		d.reportAllowed(p)
		return Verdict{}, false
	}
	ban, until := Verdict{Prefix: p, Offends: 1}, now.Add(length)
	for wide, part := range around(p) {
		if d.isAllowed(wide) {
			break // and what is wider still
		}
		if n := d.join(wide, part, now, until); n >= neighbours && ban.Prefix == p {
			ban = Verdict{Prefix: wide, Offends: n}
		}
	}
	d.banned[ban.Prefix] = now.Add(min(length, inFlight))
	if ban.Again = now.Before(d.told[ban.Prefix]); !ban.Again {
		d.told[ban.Prefix] = now.Add(sayAgain)
	}
	return ban, true
}

// Refused forgets a ban that could not be entered, so that the prefix may be banned later.
func (d *Detector) Refused(p netip.Prefix) {
	delete(d.banned, p)
	delete(d.told, p)
	for wide, part := range around(p) {
		delete(d.inside[wide], part)
	}
}

// around lists the wider prefixes around one, and the part of each that p is in: the next narrower one, or p.
func around(p netip.Prefix) iter.Seq2[netip.Prefix, netip.Prefix] {
	return func(yield func(wide, part netip.Prefix) bool) {
		part := p
		for _, bits := range wider[p.Addr().Is4()] {
			if bits >= p.Bits() {
				continue
			}
			wide, _ := p.Addr().Prefix(bits)
			if !yield(wide, part) {
				return
			}
			part = wide
		}
	}
}

// join counts the parts of a wider prefix that have offenders, with this one.
func (d *Detector) join(wide, part netip.Prefix, now, until time.Time) int {
	if d.inside[wide] == nil {
		d.makeSpaceInside()
		d.inside[wide] = map[netip.Prefix]time.Time{}
	}
	d.inside[wide][part] = until
	forgetEnded(d.inside[wide], now)
	return len(d.inside[wide])
}

// makeSpaceInside forgets any half of the wider prefixes when there are too many: their bans hold, and one in which more offend is counted anew.
func (d *Detector) makeSpaceInside() {
	if len(d.inside) < mostWide {
		return
	}
	for wide := range d.inside {
		if len(d.inside) < mostWide/2 {
			return
		}
		delete(d.inside, wide)
	}
}

// offends counts an offence, and reports whether it was the last that it took.
func (d *Detector) offends(p netip.Prefix, now time.Time) bool {
	o := d.offenders[p]
	if o == nil {
		d.makeSpace(now)
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

// makeSpace forgets offenders: first those with old offences, then any. An active offender is counted again.
func (d *Detector) makeSpace(now time.Time) {
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

// sweep forgets now and then what has ended.
func (d *Detector) sweep(now time.Time) {
	const between = time.Minute
	if now.Sub(d.swept) < between {
		return
	}
	d.swept = now
	forgetEnded(d.banned, now)
	forgetEnded(d.told, now)
	for wide, parts := range d.inside {
		if forgetEnded(parts, now); len(parts) == 0 {
			delete(d.inside, wide)
		}
	}
}

func forgetEnded(times map[netip.Prefix]time.Time, now time.Time) {
	maps.DeleteFunc(times, func(_ netip.Prefix, until time.Time) bool { return !now.Before(until) })
}

// reportAllowed tells that p is not banned.
func (d *Detector) reportAllowed(p netip.Prefix) {
	if d.Allowed == nil || d.reported[p] || len(d.reported) == maxAllowed {
		return
	}
	d.reported[p] = true
	for q := range d.never.Prefixes() {
		if q.Overlaps(p) {
			d.Allowed(p, q)
			return
		}
	}
}

func (d *Detector) isAllowed(p netip.Prefix) bool {
	var b addrs.Builder
	b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	return d.never.Overlaps(b.Set())
}

// isBanned reports whether p, or a prefix around it, was banned just now.
func (d *Detector) isBanned(p netip.Prefix, now time.Time) bool {
	if now.Before(d.banned[p]) {
		return true
	}
	for wide := range around(p) {
		if now.Before(d.banned[wide]) {
			return true
		}
	}
	return false
}
