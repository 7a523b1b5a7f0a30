// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// Upstream has the routers with which `floodwall-bgp` has BGP sessions, and the announcements that it may make.
type Upstream struct {
	AS       uint32         `json:"as"`        // the AS of this host
	RouterID netip.Addr     `json:"router_id"` // IPv4
	Announce []netip.Prefix `json:"announce"`  // this network's prefixes: only destinations within them are announced
	Live     bool           `json:"live"`      // false: a dry run, in which nothing is announced
	Auto     Step           `json:"auto,omitempty"`
	Line     uint64         `json:"line,omitempty"` // rate of the line in bits per second; 0: unknown
	Hold     time.Duration  `json:"hold"`           // the shortest lifetime of an announcement
	For      time.Duration  `json:"for"`            // the lifetime of an announcement that the daemon makes
	RTBH     RTBH           `json:"rtbh"`
	Peers    []Peer         `json:"peers"`
	Receive  Receive        `json:"receive,omitzero"` // the parameters of received FlowSpec routes; the zero value: they are ignored
}

// Receive has the parameters for FlowSpec routes from routers. Each accepted route becomes a rule.
type Receive struct {
	Max  int          `json:"max"`            // the largest number of rules from routes at a time
	From []netip.Addr `json:"from,omitempty"` // the routers whose routes are accepted; empty: all
}

// Takes reports whether routes from a router are accepted.
func (r *Receive) Takes(router netip.Addr) bool {
	return r.Max > 0 && (len(r.From) == 0 || slices.Contains(r.From, router))
}

// Step is the strongest measure that the daemon takes without an operator.
type Step string

// The steps. Each includes those before it.
const (
	StepNone     Step = ""         // only operators announce
	StepFlowSpec Step = "flowspec" // RFC 8955: drop the packets of an attack
	StepRTBH     Step = "rtbh"     // RFC 5635: drop all packets to a destination
)

// RTBH has the attributes of announcements that blackhole a destination.
type RTBH struct {
	Communities []uint32   `json:"communities"`        // RFC 1997, the AS in the upper half
	NextHop4    netip.Addr `json:"next_hop4,omitzero"` // the zero value: the address of this host in the session
	NextHop6    netip.Addr `json:"next_hop6,omitzero"`
}

// Peer is a router with which this host has a BGP session.
type Peer struct {
	Address  netip.Addr    `json:"address"`
	AS       uint32        `json:"as"`
	Local    netip.Addr    `json:"local,omitzero"`     // the address of this host in the session; the zero value: the kernel chooses
	LocalAS  uint32        `json:"local_as,omitempty"` // the local AS of this session; 0: Upstream.AS
	Password string        `json:"password,omitempty"` // the file with the key of TCP's MD5 signatures (RFC 2385); "": none
	Hops     uint8         `json:"hops,omitempty"`     // TTL security (RFC 5082): the largest distance of the router in hops; 0: the distance is not checked
	Restart  time.Duration `json:"restart,omitempty"`  // graceful restart (RFC 4724): how long the router keeps the routes of a lost session; 0: none
	HoldTime time.Duration `json:"hold_time"`          // hold time of the session (RFC 4271, 4.2)
	Families []Family      `json:"families"`
	Max      int           `json:"max"` // the largest number of simultaneous announcements
}

// Family is an address family of the routes of a session (RFC 4760).
type Family string

// The families.
const (
	IPv4Unicast  Family = "ipv4"
	IPv6Unicast  Family = "ipv6"
	IPv4FlowSpec Family = "ipv4-flowspec"
	IPv6FlowSpec Family = "ipv6-flowspec"
)

// External reports whether the router is of another AS than this host.
func (u *Upstream) External(p Peer) bool { return p.AS != u.LocalAS(p) }

// LocalAS returns this host's AS in the session with a router.
func (u *Upstream) LocalAS(p Peer) uint32 {
	if p.LocalAS != 0 {
		return p.LocalAS
	}
	return u.AS
}

// Own reports whether a prefix lies in one of the prefixes that may be announced.
func (u *Upstream) Own(p netip.Prefix) bool {
	return slices.ContainsFunc(u.Announce, func(own netip.Prefix) bool { return own.Bits() <= p.Bits() && own.Contains(p.Addr()) })
}

const blackhole = 65535<<16 | 666 // RFC 7999

// The largest numbers of prefixes, routers, announcements and received rules.
const (
	maxOwn       = 256
	maxPeers     = 16
	maxAnnounced = 1000
	maxReceived  = 32 // as many as there can be temporary rules
)

var stepWords = words[Step]{{"off", StepNone}, {"flowspec", StepFlowSpec}, {"rtbh", StepRTBH}}

var routeFamilies = words[[]Family]{
	{string(IPv4Unicast), []Family{IPv4Unicast}}, {string(IPv6Unicast), []Family{IPv6Unicast}},
	{string(IPv4FlowSpec), []Family{IPv4FlowSpec}}, {string(IPv6FlowSpec), []Family{IPv6FlowSpec}},
}

var (
	ownPrefixSchema   = define("ownPrefix", text("^[0-9a-fA-F:.]+(/[0-9]+)?$").described("A prefix of this network, of /8 or longer (IPv6: /19)."))
	routeFamilySchema = define("routeFamily", routeFamilies.schema())

	asNumber    = word(whole(1, 1<<32-2), readAS)
	peerAddress = word(text(""), readPeerAddress)

	peersSchema = &schema{
		Type: types{"array"}, MinItems: 1, MaxItems: maxPeers, Items: define("router", object(peerKeys)),
	}
)

var upstreamKeys = []key[Upstream]{
	{name: "as", value: into(asNumber, func(to *Upstream) *uint32 { return &to.AS }),
		doc: "The number of this host's network.", examples: `64500`, must: "write the number of your network, as in as: 64500"},
	{name: "router_id", value: into(word(text(""), readRouterID), func(to *Upstream) *netip.Addr { return &to.RouterID }),
		doc: "The BGP identifier of this host, as an IPv4 address.", examples: `"192.0.2.1"`,
		must: "write an IPv4 address of this host, as in router_id: 192.0.2.1"},
	{name: "announce", value: into(list(ownPrefixSchema, readOwn), func(to *Upstream) *[]netip.Prefix { return &to.Announce }),
		doc:      "Your own prefixes, at most 256: announcements are for destinations within them only.",
		examples: `["192.0.2.0/24", "2001:db8:1::/48"]`, must: "name your own prefixes, as in announce: [192.0.2.0/24]"},
	{name: "live", value: into(yesOrNo, func(to *Upstream) *bool { return &to.Live }),
		doc: "`false` is a dry run: sessions are made, and nothing is announced.", usual: `false`,
		examples: `true`},
	{name: "auto", value: into(word(enum(append(stepWords.schema().Enum, false)...), stepWords.parse), func(to *Upstream) *Step { return &to.Auto }),
		doc: "What `floodwall daemon` announces by itself while packets are lost before this host can drop them: `flowspec` the packets of " +
			"an attack that `detect` sees, `rtbh` also the attacked address when that does not help.", usual: `"off"`, examples: `"flowspec"`},
	{name: "line", value: into(word(text("^[1-9][0-9]*[mg]bit/s$"), readLine), func(to *Upstream) *uint64 { return &to.Line }),
		doc: "The capacity of the line in one direction. With `auto`, a line is full at 90% of it.", examples: `"10gbit/s"`},
	{name: "hold", value: into(timeWithin(time.Second, 24*time.Hour), func(to *Upstream) *time.Duration { return &to.Hold }),
		doc: "An announcement stays for so long at least, up to 24h.", usual: `"2m"`, examples: `"5m"`},
	{name: "for", value: into(timeWithin(time.Second, 24*time.Hour), func(to *Upstream) *time.Duration { return &to.For }),
		doc: "An announcement of the daemon stays for so long, up to 24h.", usual: `"10m"`, examples: `"30m"`},
	{name: "rtbh", value: custom(place.rtbh, object(rtbhKeys)),
		doc: "How an address is given up (remotely triggered black hole).", examples: `{"community": "64501:666"}`},
	{name: "peers", value: custom(place.peers, peersSchema),
		doc: "The routers, at most 16.", examples: `[{"address": "192.0.2.254", "as": 64501, "password_file": "/etc/floodwall/bgp.key"}]`,
		must: "name a router, as in peers: [{address: 192.0.2.254, as: 64501}]"},
	{name: "receive", value: custom(place.receive, object(receiveKeys)),
		doc: "Obey FlowSpec routes of the routers that ask to drop packets to destinations inside `announce`.", examples: `{"max": 16}`},
}

var receiveKeys = []key[Receive]{
	{name: "max", value: into(word(whole(1, maxReceived), readMostReceived), func(to *Receive) *int { return &to.Max }),
		doc: "The most rules that the routes become.", usual: `16`, examples: `8`},
	{name: "from", value: into(list(text(""), readRouter), func(to *Receive) *[]netip.Addr { return &to.From }),
		doc: "The routers whose routes are obeyed. When left out, all under `peers`.", examples: `"192.0.2.254"`},
}

var rtbhKeys = []key[RTBH]{
	{name: "community", value: into(list(text(""), readCommunity), func(to *RTBH) *[]uint32 { return &to.Communities }),
		doc: "Communities by which the router knows it. NO_EXPORT is added.", usual: `"65535:666"`, examples: `["64501:666", "65535:666"]`},
	{name: "next_hop", value: custom(place.nextHop, listUpTo(2, text(""))),
		doc:      "The next hop of such routes, one address a family, by default this host's address in the session.",
		examples: `["192.0.2.1", "100::1"]`},
}

var peerKeys = []key[Peer]{
	{name: "address", value: into(peerAddress, func(to *Peer) *netip.Addr { return &to.Address }),
		doc: "Its address.", examples: `"192.0.2.254"`, must: "write the router's address, as in address: 192.0.2.254"},
	{name: "as", value: into(asNumber, func(to *Peer) *uint32 { return &to.AS }),
		doc: "The number of its network.", examples: `64501`, must: "write the number of the router's network, as in as: 64501"},
	{name: "local", value: into(peerAddress, func(to *Peer) *netip.Addr { return &to.Local }),
		doc: "The address of this host that it has as its neighbor.", examples: `"192.0.2.1"`},
	{name: "local_as", value: into(asNumber, func(to *Peer) *uint32 { return &to.LocalAS }),
		doc: "The number of this host's network in this session alone.", examples: `64502`},
	{name: "password_file", value: into(absolutePath, func(to *Peer) *string { return &to.Password }),
		doc:      "A file with the password of the session (TCP MD5 signatures, RFC 2385), by its absolute path. Only root may read it.",
		examples: `"/etc/floodwall/bgp.key"`},
	{name: "ttl_security", value: into(word(whole(1, 254), readHops), func(to *Peer) *uint8 { return &to.Hops }),
		doc: "TTL security (RFC 5082): packets of the session from more hops away are dropped. 1 is a router on the same link. The router " +
			"needs it, too.", examples: `1`},
	{name: "graceful_restart", value: into(word(anyOf(text(""), enum(false)), readRestart), func(to *Peer) *time.Duration { return &to.Restart }),
		doc:   "How long the router keeps announcements when the session is lost, up to 4095s (RFC 4724). `off`: it drops them at once.",
		usual: `"2m"`, examples: `"1m", "off"`},
	{name: "hold_time", value: into(timeWithin(3*time.Second, 65535*time.Second), func(to *Peer) *time.Duration { return &to.HoldTime }),
		doc: "The session ends after this time without a message, 3s to 65535s.", usual: `"90s"`, examples: `"30s"`},
	{name: "families", value: into(list(routeFamilySchema, routeFamilies.parse), func(to *Peer) *[]Family { return &to.Families }),
		doc: "Address families of the session. When left out, all that it has a next hop for.", examples: `["ipv4", "ipv4-flowspec"]`},
	{name: "max", value: into(word(whole(1, maxAnnounced), readMost), func(to *Peer) *int { return &to.Max }),
		doc: "The most announcements for the router at a time.", usual: `10`, examples: `20`},
}

// upstream parses the key upstream.
func (p place) upstream(to *Policy, v *node) {
	u := new(defaults(v.Pos, upstreamKeys))
	u.RTBH = defaults(v.Pos, rtbhKeys)
	p = p.in("upstream")
	errs := len(p.r.errs)
	seen := readKeys(p, "upstream", v, upstreamKeys, u)
	if len(p.r.errs) > errs || seen == nil {
		return
	}
	p.upstreamWhole(u, v)
	to.Daemon.Upstream = u
}

// upstreamWhole reports combinations of keys that are not allowed.
func (p place) upstreamWhole(u *Upstream, v *node) {
	if u.For < u.Hold {
		p.errorf(cmp.Or(v.Get("for"), v.Get("hold"), v).Pos, "for is %v, shorter than hold, %v", u.For, u.Hold).Hint = "an announcement stays at least for hold"
	}
	if len(u.Announce) > maxOwn {
		p.errorf(v.Get("announce").Pos, "announce has %d prefixes, more than %d", len(u.Announce), maxOwn).Hint = "name larger prefixes"
	}
	p.receivesFrom(u, v)
	for i := range u.Peers {
		at, peer := v.Get("peers").Items[i].Pos, &u.Peers[i]
		if peer.Families == nil {
			peer.Families = u.usualFamilies(*peer)
		}
		switch {
		case peer.Local.IsValid() && peer.Local.Is4() != peer.Address.Is4():
			p.errorf(at, "peers: local and address are of different families").Hint = "name the address of this host that the router has as its neighbor"
		case peer.Address.Is4() && slices.Contains(peer.Families, IPv6Unicast) && !u.RTBH.NextHop6.IsValid():
			p.errorf(at, "peers: the session with %s runs over IPv4: routes of the family ipv6 have no next hop there", peer.Address).Hint =
				"name one, as in rtbh: {next_hop: \"100::1\"}, or leave the family out"
		case peer.Address.Is6() && slices.Contains(peer.Families, IPv4Unicast) && !u.RTBH.NextHop4.IsValid():
			p.errorf(at, "peers: the session with %s runs over IPv6: routes of the family ipv4 have no next hop there", peer.Address).Hint =
				"name one, as in rtbh: {next_hop: 192.0.2.1}, or leave the family out"
		}
	}
}

// receive parses the key receive.
func (p place) receive(to *Upstream, v *node) {
	to.Receive = defaults(v.Pos, receiveKeys)
	readKeys(p.in("receive"), "receive", v, receiveKeys, &to.Receive)
}

// receivesFrom checks that each router whose routes are accepted has a session.
func (p place) receivesFrom(u *Upstream, v *node) {
	for _, from := range u.Receive.From {
		if !slices.ContainsFunc(u.Peers, func(p Peer) bool { return p.Address == from }) {
			p.errorf(v.Get("receive").Pos, "receive: from names %s, which is not among peers", from).Hint = "name the address of one of the peers"
		}
	}
}

// usualFamilies returns all families that a session can carry.
func (u *Upstream) usualFamilies(p Peer) []Family {
	if p.Address.Is4() && !u.RTBH.NextHop6.IsValid() {
		return []Family{IPv4Unicast, IPv4FlowSpec, IPv6FlowSpec}
	}
	if p.Address.Is6() && !u.RTBH.NextHop4.IsValid() {
		return []Family{IPv6Unicast, IPv4FlowSpec, IPv6FlowSpec}
	}
	return []Family{IPv4Unicast, IPv6Unicast, IPv4FlowSpec, IPv6FlowSpec}
}

func (p place) rtbh(to *Upstream, v *node) { readKeys(p.in("rtbh"), "rtbh", v, rtbhKeys, &to.RTBH) }

// nextHop parses the key next_hop.
func (p place) nextHop(to *RTBH, v *node) {
	for _, a := range values(p, "next_hop", v, readHop) {
		if a.Is4() {
			to.NextHop4 = a
		} else {
			to.NextHop6 = a
		}
	}
}

// peers parses the list of routers.
func (p place) peers(to *Upstream, v *node) {
	p = p.in("peers")
	if v.Kind != yamltree.List || len(v.Items) == 0 {
		p.errorf(v.Pos, "must be a list of routers, got %s", v).Hint = "write peers: [{address: 192.0.2.254, as: 64501}]"
		return
	}
	if len(v.Items) > maxPeers {
		p.errorf(v.Pos, "has %d routers, more than %d", len(v.Items), maxPeers)
	}
	first := map[netip.Addr]Pos{}
	for _, item := range v.Items {
		peer := defaults(item.Pos, peerKeys)
		if item.Kind == yamltree.Broken {
			continue
		}
		readKeys(p, "a router", item, peerKeys, &peer)
		if at, twice := first[peer.Address]; twice && peer.Address.IsValid() {
			p.errorf(item.Pos, "%s appears twice, first in line %d", peer.Address, at.Line).Hint = "remove one of them"
		}
		first[peer.Address] = item.Pos
		to.Peers = append(to.Peers, peer)
	}
}

func readAS(text string) (uint32, *flaw) {
	n, f := number(text, 1<<32-1)
	if f == nil && (n == 0 || n == 23456 || n == 65535 || n == 1<<32-1) { // RFC 7607, 6793, 7300
		f = want("the number of a network, from 1 on", text).hintf("%d is reserved", n)
	}
	if f != nil && strings.HasPrefix(strings.ToLower(text), "as") {
		f.hintf("write the number alone, %s", text[2:])
	}
	return uint32(n), f
}

func readRouterID(text string) (netip.Addr, *flaw) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}, want("an IPv4 address", text).hintf("write one of this host; a router without one takes any that nobody else uses")
	}
	return a, nil
}

func readPeerAddress(text string) (netip.Addr, *flaw) {
	a, f := address(text, text)
	if f == nil && (a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast()) {
		f = want("the address of one host that is not of a link alone", text)
	}
	return a, f
}

func readRouter(text string) ([]netip.Addr, *flaw) { return one(readPeerAddress(text)) }

func readMostReceived(text string) (int, *flaw) {
	n, f := number(text, maxReceived)
	if f == nil && n == 0 {
		f = want(fmt.Sprintf("a number from 1 to %d", maxReceived), text).hintf("leave receive out, and no route is obeyed")
	}
	return int(n), f
}

func readHop(text string) ([]netip.Addr, *flaw) {
	a, f := address(text, text)
	if f == nil && a.IsUnspecified() {
		f = want("the address of a next hop", text).hintf("leave next_hop out for the address of this host")
	}
	return one(a, f)
}

// readOwn parses a prefix of this network. A prefix must not be larger than the largest allocations to one network.
func readOwn(text string) ([]netip.Prefix, *flaw) {
	const least4, least6 = 8, 19
	r, f := addrRange(text)
	if f != nil {
		return nil, f
	}
	own, ok := netipx.IPRangeFrom(r.First, r.Last).Prefix()
	switch {
	case !ok:
		return nil, want("a prefix", text).hintf("write it as 192.0.2.0/24")
	case own.Addr().Is4() && own.Bits() < least4, own.Addr().Is6() && own.Bits() < least6:
		return nil, want(fmt.Sprintf("a prefix of your own, of /%d or longer (IPv6: /%d)", least4, least6), text)
	case own.Addr().IsMulticast(), own.Addr().IsLoopback(), own.Addr().IsLinkLocalUnicast():
		return nil, want("a prefix of unicast addresses", text)
	}
	return []netip.Prefix{own}, nil
}

// readCommunity parses AS:VALUE (RFC 1997), or a well-known name.
func readCommunity(text string) ([]uint32, *flaw) {
	if text == "blackhole" {
		return []uint32{blackhole}, nil
	}
	as, value, ok := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(as, 10, 16)
	b, errB := strconv.ParseUint(value, 10, 16)
	if !ok || errA != nil || errB != nil {
		return nil, want("a community such as 65535:666", text).hintf("write two numbers up to 65535 in quotes, \"65535:666\"")
	}
	return []uint32{uint32(a<<16 | b)}, nil
}

func readHops(text string) (uint8, *flaw) {
	n, f := number(text, 254)
	if f == nil && n == 0 {
		f = want("a number of hops from 1 to 254", text).hintf("write 1 for a router on the same link, or leave the key out")
	}
	return uint8(n), f
}

// readRestart parses how long a router keeps the routes of a lost session. The upper limit is the largest value in a BGP message.
func readRestart(text string) (time.Duration, *flaw) {
	if on, ok := switches[text]; ok && !on {
		return 0, nil
	}
	return withinTimes(time.Second, 4095*time.Second)(text)
}

func readMost(text string) (int, *flaw) {
	n, f := number(text, maxAnnounced)
	if f == nil && n == 0 {
		f = want(fmt.Sprintf("a number from 1 to %d", maxAnnounced), text)
	}
	return int(n), f
}

// readLine parses the rate of a line in bits per second. It may exceed the largest rate of a limit.
func readLine(text string) (uint64, *flaw) {
	const most = 10_000 * 1_000_000_000
	bad := want("the rate of a line, such as 10gbit/s", text).hintf("write 1gbit/s or 10gbit/s")
	unit, ok := strings.CutSuffix(text, "/s")
	if !ok {
		return 0, bad
	}
	a, f := readAmount(unit)
	if f != nil || !a.bits || a.n < 1_000_000 || a.n > most {
		return 0, bad
	}
	return a.n, nil
}

// timeWithin returns the form of durations from least to most.
func timeWithin(least, most time.Duration) form[time.Duration] {
	return word(text(""), withinTimes(least, most))
}

// withinTimes returns a parser of durations from least to most.
func withinTimes(least, most time.Duration) func(string) (time.Duration, *flaw) {
	return func(text string) (time.Duration, *flaw) {
		d, f := duration(text)
		if f != nil {
			f.hint = ""
			return 0, f
		}
		if d < least || d > most {
			return 0, want(fmt.Sprintf("a time from %v to %v", least, most), text)
		}
		return d, nil
	}
}
