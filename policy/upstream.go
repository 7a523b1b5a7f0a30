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

// Upstream are the routers upstream that `floodwall-bgp` has BGP sessions with, and what may be announced to them.
type Upstream struct {
	AS       uint32         `json:"as"`        // of this host
	RouterID netip.Addr     `json:"router_id"` // IPv4
	Announce []netip.Prefix `json:"announce"`  // own prefixes: announcements are for destinations within them alone
	Live     bool           `json:"live"`      // else nothing is announced: a dry run
	Auto     Step           `json:"auto,omitempty"`
	Line     uint64         `json:"line,omitempty"` // bits a second that the line carries; 0 is unknown
	Hold     time.Duration  `json:"hold"`           // for which an announcement stays at least
	For      time.Duration  `json:"for"`            // for which an announcement of the daemon stays
	RTBH     RTBH           `json:"rtbh"`
	Peers    []Peer         `json:"peers"`
	Receive  Receive        `json:"receive,omitzero"` // the zero value: FlowSpec routes of routers are not obeyed
}

// Receive is how FlowSpec routes of routers are obeyed.
type Receive struct {
	Max  int          `json:"max"`            // rules that they may come to at a time
	From []netip.Addr `json:"from,omitempty"` // the routers whose routes are obeyed; empty: all
}

// Takes reports whether routes of a router are obeyed.
func (r *Receive) Takes(router netip.Addr) bool {
	return r.Max > 0 && (len(r.From) == 0 || slices.Contains(r.From, router))
}

// Step is how far the daemon goes by itself.
type Step string

// The steps. Each includes those before it.
const (
	StepNone     Step = ""         // only people announce
	StepFlowSpec Step = "flowspec" // RFC 8955: drop the packets of an attack
	StepRTBH     Step = "rtbh"     // RFC 5635: drop all packets to a destination
)

// RTBH is how a destination is given up.
type RTBH struct {
	Communities []uint32   `json:"communities"`        // RFC 1997, the AS in the upper half
	NextHop4    netip.Addr `json:"next_hop4,omitzero"` // the zero value: the address of this host in the session
	NextHop6    netip.Addr `json:"next_hop6,omitzero"`
}

// Peer is a router.
type Peer struct {
	Address  netip.Addr    `json:"address"`
	AS       uint32        `json:"as"`
	Local    netip.Addr    `json:"local,omitzero"`     // the address of this host in the session; the zero value: the kernel chooses
	LocalAS  uint32        `json:"local_as,omitempty"` // in place of the host's; 0: the host's
	Password string        `json:"password,omitempty"` // the file with the key of TCP's MD5 signatures (RFC 2385); "": none
	Hops     uint8         `json:"hops,omitempty"`     // TTL security (RFC 5082): the router is so many hops away at most; 0: any
	Restart  time.Duration `json:"restart,omitempty"`  // graceful restart (RFC 4724): the router keeps routes so long; 0: not at all
	HoldTime time.Duration `json:"hold_time"`          // of the session (RFC 4271, 4.2)
	Families []Family      `json:"families"`
	Max      int           `json:"max"` // announcements that it gets at the same time
}

// Family is an address family of routes (RFC 4760).
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

// LocalAS is the AS that this host has in the session with a router.
func (u *Upstream) LocalAS(p Peer) uint32 {
	if p.LocalAS != 0 {
		return p.LocalAS
	}
	return u.AS
}

// Own reports whether a prefix is within those that may be announced.
func (u *Upstream) Own(p netip.Prefix) bool {
	return slices.ContainsFunc(u.Announce, func(own netip.Prefix) bool { return own.Bits() <= p.Bits() && own.Contains(p.Addr()) })
}

// What holds where the policy does not say it.
const (
	usualAnnounceHold = 2 * time.Minute
	usualAnnounceFor  = 10 * time.Minute
	usualRestart      = 2 * time.Minute
	usualHoldTime     = 90 * time.Second
	usualPeerMax      = 10
	usualReceived     = 16
	blackhole         = 65535<<16 | 666 // RFC 7999
)

// The most prefixes, routers and announcements.
const (
	maxOwn       = 256
	maxPeers     = 16
	maxAnnounced = 1000
	maxReceived  = 32 // as many as there can be temporary rules
)

var stepWords = map[string]Step{"off": StepNone, "flowspec": StepFlowSpec, "rtbh": StepRTBH}

var routeFamilies = map[string]Family{
	string(IPv4Unicast): IPv4Unicast, string(IPv6Unicast): IPv6Unicast, string(IPv4FlowSpec): IPv4FlowSpec, string(IPv6FlowSpec): IPv6FlowSpec,
}

var upstreamKeys = []key[Upstream]{
	{"as", func(p place, to *Upstream, v *node) { to.AS = scalarOf(p, "as", v, readAS) }},
	{"router_id", func(p place, to *Upstream, v *node) { to.RouterID = scalarOf(p, "router_id", v, readRouterID) }},
	{"announce", func(p place, to *Upstream, v *node) { to.Announce = values(p, "announce", v, readOwn) }},
	{"live", func(p place, to *Upstream, v *node) { to.Live = scalarOf(p, "live", v, choice(switches)) }},
	{"auto", func(p place, to *Upstream, v *node) { to.Auto = scalarOf(p, "auto", v, choice(stepWords)) }},
	{"line", func(p place, to *Upstream, v *node) { to.Line = scalarOf(p, "line", v, readLine) }},
	{"hold", func(p place, to *Upstream, v *node) {
		to.Hold = scalarOf(p, "hold", v, timeWithin(time.Second, 24*time.Hour))
	}},
	{"for", func(p place, to *Upstream, v *node) {
		to.For = scalarOf(p, "for", v, timeWithin(time.Second, 24*time.Hour))
	}},
	{"rtbh", func(p place, to *Upstream, v *node) { p.rtbh(&to.RTBH, v) }},
	{"peers", func(p place, to *Upstream, v *node) { p.peers(to, v) }},
	{"receive", place.receive},
}

var receiveKeys = []key[Receive]{
	{"max", func(p place, to *Receive, v *node) { to.Max = scalarOf(p, "max", v, readMostReceived) }},
	{"from", func(p place, to *Receive, v *node) { to.From = values(p, "from", v, readRouter) }},
}

var rtbhKeys = []key[RTBH]{
	{"community", func(p place, to *RTBH, v *node) { to.Communities = values(p, "community", v, readCommunity) }},
	{"next_hop", func(p place, to *RTBH, v *node) {
		for _, a := range values(p, "next_hop", v, readHop) {
			if a.Is4() {
				to.NextHop4 = a
			} else {
				to.NextHop6 = a
			}
		}
	}},
}

var peerKeys = []key[Peer]{
	{"address", func(p place, to *Peer, v *node) { to.Address = scalarOf(p, "address", v, readPeerAddress) }},
	{"as", func(p place, to *Peer, v *node) { to.AS = scalarOf(p, "as", v, readAS) }},
	{"local", func(p place, to *Peer, v *node) { to.Local = scalarOf(p, "local", v, readPeerAddress) }},
	{"local_as", func(p place, to *Peer, v *node) { to.LocalAS = scalarOf(p, "local_as", v, readAS) }},
	{"password_file", func(p place, to *Peer, v *node) { to.Password = scalarOf(p, "password_file", v, readAbsolute) }},
	{"ttl_security", func(p place, to *Peer, v *node) { to.Hops = scalarOf(p, "ttl_security", v, readHops) }},
	{"graceful_restart", func(p place, to *Peer, v *node) { to.Restart = scalarOf(p, "graceful_restart", v, readRestart) }},
	{"hold_time", func(p place, to *Peer, v *node) {
		to.HoldTime = scalarOf(p, "hold_time", v, timeWithin(3*time.Second, 65535*time.Second))
	}},
	{"families", func(p place, to *Peer, v *node) { to.Families = values(p, "families", v, readFamilyOfRoutes) }},
	{"max", func(p place, to *Peer, v *node) { to.Max = scalarOf(p, "max", v, readMost) }},
}

// upstream reads the routers upstream.
func (p place) upstream(to *Policy, v *node) {
	u := &Upstream{Hold: usualAnnounceHold, For: usualAnnounceFor, RTBH: RTBH{Communities: []uint32{blackhole}}}
	p = p.in("upstream")
	errs := len(p.r.errs)
	seen := readKeys(p, "upstream", v, upstreamKeys, u)
	p.require(v, seen, "as", "write the number of your network, as in as: 64500")
	p.require(v, seen, "router_id", "write an IPv4 address of this host, as in router_id: 192.0.2.1")
	p.require(v, seen, "announce", "name your own prefixes, as in announce: [192.0.2.0/24]")
	p.require(v, seen, "peers", "name a router, as in peers: [{address: 192.0.2.254, as: 64501}]")
	if len(p.r.errs) > errs || seen == nil {
		return
	}
	p.upstreamWhole(u, v)
	to.Daemon.Upstream = u
}

// upstreamWhole checks what several keys say together.
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

// receive reads how received routes are obeyed.
func (p place) receive(to *Upstream, v *node) {
	to.Receive.Max = usualReceived
	readKeys(p.in("receive"), "receive", v, receiveKeys, &to.Receive)
}

// receivesFrom checks that routes are taken from routers that have sessions.
func (p place) receivesFrom(u *Upstream, v *node) {
	for _, from := range u.Receive.From {
		if !slices.ContainsFunc(u.Peers, func(p Peer) bool { return p.Address == from }) {
			p.errorf(v.Get("receive").Pos, "receive: from names %s, which is not among peers", from).Hint = "name the address of one of the peers"
		}
	}
}

// usualFamilies are all that a session can carry.
func (u *Upstream) usualFamilies(p Peer) []Family {
	if p.Address.Is4() && !u.RTBH.NextHop6.IsValid() {
		return []Family{IPv4Unicast, IPv4FlowSpec, IPv6FlowSpec}
	}
	if p.Address.Is6() && !u.RTBH.NextHop4.IsValid() {
		return []Family{IPv6Unicast, IPv4FlowSpec, IPv6FlowSpec}
	}
	return []Family{IPv4Unicast, IPv6Unicast, IPv4FlowSpec, IPv6FlowSpec}
}

func (p place) rtbh(to *RTBH, v *node) { readKeys(p.in("rtbh"), "rtbh", v, rtbhKeys, to) }

// peers reads the list of routers.
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
		peer := Peer{Restart: usualRestart, HoldTime: usualHoldTime, Max: usualPeerMax}
		if item.Kind == yamltree.Broken {
			continue
		}
		seen := readKeys(p, "a router", item, peerKeys, &peer)
		p.require(item, seen, "address", "write the router's address, as in address: 192.0.2.254")
		p.require(item, seen, "as", "write the number of the router's network, as in as: 64501")
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

// readOwn reads a prefix of ours. The shortest are what one network is given.
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

// readCommunity reads AS:VALUE (RFC 1997), or a well-known name.
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

// readRestart reads how long a router keeps the routes of a session that was lost. The most is what a message can say.
func readRestart(text string) (time.Duration, *flaw) {
	if on, ok := switches[text]; ok && !on {
		return 0, nil
	}
	return timeWithin(time.Second, 4095*time.Second)(text)
}

func readFamilyOfRoutes(text string) ([]Family, *flaw) {
	return one(choice(routeFamilies)(text))
}

func readMost(text string) (int, *flaw) {
	n, f := number(text, maxAnnounced)
	if f == nil && n == 0 {
		f = want(fmt.Sprintf("a number from 1 to %d", maxAnnounced), text)
	}
	return int(n), f
}

// readLine reads bits a second. Lines are faster than what a limit can count.
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

// timeWithin reads a time between two.
func timeWithin(least, most time.Duration) func(string) (time.Duration, *flaw) {
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
