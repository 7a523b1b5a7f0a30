// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// tracking parses the value of track.
func tracking(text string) (Tracking, *flaw) {
	on, ok := switches[text]
	switch {
	case !ok:
		return TrackAsIs, want("true or false", text).hintf(
			"false keeps the service out of conntrack's table, true has its packets checked against it")
	case on:
		return Track, nil
	}
	return TrackNot, nil
}

// notTracked are words with a spelling similar to track and the opposite meaning.
var notTracked = []string{"notrack", "no-track", "untracked"}

// trackedOneWay reports that the service n shares a port with an earlier service that has the opposite value of track. An exemption from conntrack
// applies to the whole port, before any other test of the packet.
func (p place) trackedOneWay(earlier []Service, s Service, n *node) {
	for _, e := range earlier {
		if !opposed(s.Track, e.Track) || s.untracks() && n.Get("track") == nil || e.untracks() { // protectedOnce reports these
			continue
		}
		if port, ok := sharedPort(s.Port, e.Port); ok {
			p.errorf(n.Get("track").Pos, "track must be the same for all services of a port: %s is %s in line %d, and %s here",
				port, e.Track, e.Pos.Line, s.Track).Hint = "give both the same track, or each ports of its own"
			return
		}
	}
}

// String returns the meaning of t, for messages.
func (t Tracking) String() string {
	return [...]string{TrackAsIs: "tracked as it is", TrackNot: "not tracked", Track: "tracked"}[t]
}

func opposed(a, b Tracking) bool { return a == Track && b == TrackNot || a == TrackNot && b == Track }

// sharedPort returns the first range of ports that is in both lists.
func sharedPort(as, bs []Port) (Port, bool) {
	for _, a := range as {
		for _, b := range bs {
			both := Port{max(a.Proto, b.Proto), max(a.First, b.First), min(a.Last, b.Last)}
			if (a.Proto == b.Proto || a.Proto == 0 || b.Proto == 0) && both.First <= both.Last {
				return both, true
			}
		}
	}
	return Port{}, false
}

// exemptKeys are the keys of a mapping under untracked.
var exemptKeys = slices.DeleteFunc(slices.Clone(matchKeys), func(k key[Match]) bool {
	return !slices.Contains([]string{"from", "to", "proto", "port", "sport", "family"}, k.name)
})

var untrackedSchema = func() *schema {
	keys := object(exemptKeys)
	keys.MinProperties = 1
	return define("untracked", anyOf(define("traffic", trafficWords.schema()), define("exempt", keys)).
		titled("`all`, `loopback`, `multicast`, `broadcast` or match keys"))
}()

// untracked parses the key untracked: words for kinds of traffic, and mappings of match keys, alone or in a list.
func (p place) untracked(to *Policy, v *node) {
	if v.Kind == yamltree.Mapping {
		p.exempt(to, v)
		return
	}
	words := *v
	words.Items = nil
	for _, n := range v.Items {
		if n.Kind == yamltree.Mapping {
			p.exempt(to, n)
		} else {
			words.Items = append(words.Items, n)
		}
	}
	if v.Kind != yamltree.List || len(words.Items) == len(v.Items) || len(words.Items) > 0 {
		to.Untracked = values(p, "untracked", &words, readTraffic)
	}
	if slices.Contains(to.Untracked, AllTraffic) && len(to.Untracked)+len(to.Exempt) > 1 {
		p.errorf(v.Pos, "untracked has all, and more").Hint = "write untracked: all, which includes the others"
	}
}

// exempt parses a mapping of match keys under untracked.
func (p place) exempt(to *Policy, n *node) {
	in, before, e := p.in("untracked"), len(p.r.errs), Exempt{Pos: n.Pos}
	seen := readKeys(in, "an entry", n, exemptKeys, &e.Match)
	switch {
	case len(p.r.errs) > before:
	case len(seen) == 0:
		in.errorf(n.Pos, "an entry without keys is all traffic").Hint = "write untracked: all, or remove it"
	default:
		in.contradictions(n)
	}
	to.Exempt = append(to.Exempt, e)
}

// readTraffic parses a word for a kind of traffic that is exempt from conntrack.
func readTraffic(text string) ([]Traffic, *flaw) {
	kinds, f := trafficWords.parse(text)
	_, noProto := proto(text)
	switch {
	case f == nil || f.hint != "":
	case noProto == nil:
		f.hintf("write {proto: %s}", text)
	case strings.HasPrefix(text, "$") || addrFlaw(text) == nil:
		f.hintf("write {from: %s}", text)
	default:
		f.hintf("a service is exempted with `track: false`, other traffic by match keys: {proto: ospf}, {from: $trusted}")
	}
	return kinds, f
}

func addrFlaw(text string) *flaw {
	_, f := addrRange(text)
	return f
}

var trafficWords = words[[]Traffic]{
	{"loopback", []Traffic{Loopback}}, {"multicast", []Traffic{Multicast}}, {"broadcast", []Traffic{Broadcast}}, {"all", []Traffic{AllTraffic}},
}

// untrackedServices reports services with track: true in a policy that exempts all traffic from conntrack.
func (p place) untrackedServices(to *Policy) {
	if !slices.Contains(to.Untracked, AllTraffic) {
		return
	}
	for _, s := range to.Services {
		if s.Track == Track {
			p.errorf(s.Pos, "service %s: track: true needs connection tracking, and untracked is all", wording.Quote(s.Name)).Hint =
				"name what is not tracked, as in untracked: [loopback, {proto: ospf}], or remove track"
		}
	}
}
