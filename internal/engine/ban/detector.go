// SPDX-License-Identifier: Apache-2.0

// This file decides which prefixes to ban, from reports of packets over a limit: the detector behind `over: {ban: …}`. It makes no calls to the
// kernel, and takes the time from its arguments only.

package ban

import (
	"iter"
	"maps"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// Number and time of the offences that lead to a ban. An honest client may send a single packet over a limit. A flood exceeds the limit in many
// samples at once.
const (
	enough    = 8                // offences
	within    = 10 * time.Second // maximum time between the first and the last offence
	mostKnown = 1 << 16          // maximum number of remembered offenders, so that a flood of forged sources does not fill the memory
	mostWide  = 1 << 15          // maximum number of remembered wider prefixes with offenders, for the same reason
)

const (
	inFlight   = 10 * time.Second // time after a ban in which offences are ignored: these packets were already on their way
	sayAgain   = time.Minute      // time after which a repeated ban is reported again
	maxAllowed = 100              // offenders on the allowlist that are reported
)

// neighbours is the number of offenders in a wider prefix at which the detector bans the wider prefix, in place of the single offenders.
const neighbours = 16

// wider are the prefix lengths to which bans are widened, longest first: the size that one customer or one site is assigned (RFC 6177 for IPv6).
var wider = map[bool][]int{true: {24}, false: {56, 48}} // by Is4

// Verdict is a prefix to ban.
type Verdict struct {
	Prefix  netip.Prefix
	Offends int  // the number of offenders in Prefix; after widening twice, the number of narrower prefixes that have offenders
	Again   bool // the prefix was banned less than a minute ago and still offends, because a rule before the set decides about its packets
}

// Detector counts the offences of one limit. The zero value is not usable; see New.
type Detector struct {
	// Allowed, unless it is nil, is called once for an offender that is not banned because it overlaps the prefix never of the allowlist. It is
	// called for at most 100 offenders.
	Allowed func(p, never netip.Prefix)

	never     *addrs.Set
	offenders map[netip.Prefix]*offender
	banned    map[netip.Prefix]time.Time                  // time until which the ban is assumed to hold; this time is short, because a person may remove the ban
	told      map[netip.Prefix]time.Time                  // time until which a ban is not reported again
	reported  map[netip.Prefix]bool                       // offenders for which Allowed was called
	inside    map[netip.Prefix]map[netip.Prefix]time.Time // for each wider prefix: its parts with offenders, and the time until which each part counts
	swept     time.Time
}

// offender is a prefix that exceeded the limit.
type offender struct {
	first time.Time // time of the first offence that counts
	count int
}

// NewDetector returns a detector that never bans a prefix that overlaps never.
func NewDetector(never *addrs.Set) *Detector {
	return &Detector{
		never: never, offenders: map[netip.Prefix]*offender{}, banned: map[netip.Prefix]time.Time{},
		told: map[netip.Prefix]time.Time{}, reported: map[netip.Prefix]bool{},
		inside: map[netip.Prefix]map[netip.Prefix]time.Time{},
	}
}

// SetAllowlist replaces the addresses that are never banned.
func (d *Detector) SetAllowlist(never *addrs.Set) { d.never = never }

// Offence records that a prefix exceeded the limit. If a ban follows, Offence returns it: a ban of p, or of a wider prefix that has many offenders.
// length is the duration of the ban.
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
			break // every wider prefix overlaps the allowlist, too
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

// Refused forgets a ban that could not be added to the set, so that the prefix may be banned later.
func (d *Detector) Refused(p netip.Prefix) {
	delete(d.banned, p)
	delete(d.told, p)
	for wide, part := range around(p) {
		delete(d.inside[wide], part)
	}
}

// around yields the wider prefixes around p. With each it yields the part that contains p: the next narrower prefix, or p.
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

// join adds a part that has offenders to a wider prefix. It returns the number of such parts in the wider prefix.
func (d *Detector) join(wide, part netip.Prefix, now, until time.Time) int {
	if d.inside[wide] == nil {
		d.makeSpaceInside()
		d.inside[wide] = map[netip.Prefix]time.Time{}
	}
	d.inside[wide][part] = until
	forgetEnded(d.inside[wide], now)
	return len(d.inside[wide])
}

// makeSpaceInside removes an arbitrary half of the wider prefixes from memory when there are too many. Bans of these prefixes stay in force. Their
// later offenders are counted from 0.
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

// offends counts an offence of a prefix. It returns true if the prefix has reached the number of offences for a ban.
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

// makeSpace removes offenders from memory: first offenders with old offences, then arbitrary ones. An offender that continues is counted again from
// 1.
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

// sweep removes expired entries from memory, at most once a minute.
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

// reportAllowed calls Allowed for p, which is not banned because it overlaps the allowlist.
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
