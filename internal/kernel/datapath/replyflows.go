// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// ReplyFlow is a TCP or UDP flow whose replies pass. IPv4 addresses are not in mapped form.
type ReplyFlow struct {
	Proto      uint8          // unix.IPPROTO_TCP or IPPROTO_UDP
	Own, Other netip.AddrPort // the addresses of this side and of the side that answers, as in leaving packets
	Opening    bool           // a TCP flow in which no reply has arrived yet
}

// ReplyFlows is the table of reply flows of a program, mapped into memory (bpf/replyflow.h).
type ReplyFlows struct {
	words    []uint64 // the words of all buckets
	used     []uint64 // the first filter: a bit for each bucket
	bits     []uint64 // the second filter: 32 bits for each bucket
	secrets  image.ReplySecrets
	services []uint64 // a bit for each port whose flows are not recorded, first for TCP, then for UDP
	release  func()
}

// The states of a reply flow: enum reply_state.
const (
	replyTCPSYN  = 1
	replyTCPOpen = 3
	replyUDPOpen = 9
)

// The fields of a word, from the lowest bit on, as in an enum of bpf/replyflow.h.
const (
	replyUnit       = 32
	replySeenMask   = 1<<16 - 1
	replyStateShift = 16
)

// ReplyFlows maps the program's table of reply flows into memory. The table is valid until its Close. It is nil when the program records no flows.
func (p *Program) ReplyFlows() (*ReplyFlows, error) {
	memory, release, err := p.Memory(image.ReplyFlows, image.ReplyFilter, image.Services)
	if err != nil {
		return nil, err
	}
	return newReplyFlows(memory, release), nil
}

// ReplyFlows maps the generation's table of reply flows into memory. The table is valid until the generation is closed. It is nil when the generation
// records no flows.
func (g *Generation) ReplyFlows() (*ReplyFlows, error) {
	if notes, err := g.notesReplies(); !notes || err != nil {
		return nil, err
	}
	memory, err := g.Memory(image.ReplyFlows, image.ReplyFilter, image.Services)
	if err != nil {
		return nil, err
	}
	return newReplyFlows(memory, func() {}), nil
}

// notesReplies reports whether the generation's program records flows. A program that does not has a table of the smallest size, whose format is
// irrelevant.
func (g *Generation) notesReplies() (bool, error) {
	m, err := ebpf.LoadPinnedMap(g.dir+"/"+pinName(image.ReplyFlows), nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("map %s: %w", image.ReplyFlows, err)
	}
	defer m.Close()
	return m.ValueSize() > image.ReplyBucketSize, nil
}

func newReplyFlows(memory map[string][]byte, release func()) *ReplyFlows {
	table, filter := memory[image.ReplyFlows], memory[image.ReplyFilter]
	if len(table) < image.ReplyBuckets*image.ReplyBucketSize { // a table of the smallest size is not used
		release()
		return nil
	}
	used, bits := filter[image.ReplySecretsSize:], filter[image.ReplySecretsSize+image.ReplyUsedSize:]
	return &ReplyFlows{
		words: wordsOf(table), used: wordsOf(used[:image.ReplyUsedSize]), bits: wordsOf(bits),
		services: wordsOf(memory[image.Services]), secrets: image.ReplySecretsOf(filter), release: release,
	}
}

// Close unmaps the memory.
func (f *ReplyFlows) Close() { f.release() }

// place returns the bucket index and the hash of a flow.
func (f *ReplyFlows) place(flow ReplyFlow) (index, hash uint64) {
	pair := f.secrets.Pair(flow.Other.Addr(), flow.Own.Addr())
	ports, kind := image.ReplyPorts(flow.Other.Port(), flow.Own.Port()), uint64(image.ReplyUDP)
	if flow.Proto == unix.IPPROTO_TCP {
		kind = image.ReplyTCP
	}
	return f.secrets.Index(pair, ports), f.secrets.Hash(pair, ports, kind)
}

// Add adds open flows, and returns the number of added flows. It does not add a flow to a full bucket. An existing flow stays unchanged, unless it
// has expired. Add leaves out flows of the policy's services.
func (f *ReplyFlows) Add(list []ReplyFlow) (added int) {
	now := replyNow()
	for _, flow := range list {
		port := uint64(flow.Own.Port())
		if flow.Proto == unix.IPPROTO_UDP {
			port |= 1 << 16
		}
		if f.services != nil && f.services[port/64]>>(port%64)&1 != 0 {
			continue
		}
		index, hash := f.place(flow)
		state := uint64(replyUDPOpen)
		switch {
		case flow.Opening:
			state = replyTCPSYN
		case flow.Proto == unix.IPPROTO_TCP:
			state = replyTCPOpen
		}
		word := hash>>image.ReplyTagShift<<image.ReplyTagShift | state<<replyStateShift | now
		if f.put(f.bucket(index), word, now) {
			f.set(index, image.ReplyBits(word))
			added++
		}
	}
	return added
}

func (f *ReplyFlows) bucket(number uint64) []uint64 {
	return f.words[number*image.ReplySlots:][:image.ReplySlots]
}

// put writes a word into a slot whose flow has expired. It writes nothing if the bucket already has the same flow.
func (f *ReplyFlows) put(bucket []uint64, word, now uint64) bool {
	free := -1
	var was uint64
	for i := range bucket {
		old := atomic.LoadUint64(&bucket[i])
		over := replyIsOver(old, now)
		switch {
		case old != 0 && old>>image.ReplyTagShift == word>>image.ReplyTagShift:
			return !over || atomic.CompareAndSwapUint64(&bucket[i], old, word)
		case over && free < 0:
			free, was = i, old
		}
	}
	return free >= 0 && atomic.CompareAndSwapUint64(&bucket[free], was, word)
}

// set sets the bits of a bucket in both filters. It sets the first filter first, as set_reply_bits() of bpf/replyflow.h does.
func (f *ReplyFlows) set(number uint64, bits uint32) {
	atomic.OrUint64(&f.used[number/64], 1<<(number%64))
	atomic.OrUint64(&f.bits[number/2], uint64(bits)<<(number%2*32))
}

// needs returns the bits of the second filter that a bucket needs.
func (f *ReplyFlows) needs(number uint64) (bits uint32) {
	words := f.bucket(number)
	for i := range words {
		if word := atomic.LoadUint64(&words[i]); word != 0 {
			bits |= image.ReplyBits(word)
		}
	}
	return bits
}

// Sweep removes expired flows from the table, because stored times wrap around after three days. It also clears bits of the filters that no flow
// needs. The program may record flows meanwhile: see clear_reply_bits() of bpf/replyflow.h.
func (f *ReplyFlows) Sweep() {
	now := replyNow()
	for i := range f.words {
		if word := atomic.LoadUint64(&f.words[i]); word != 0 && replyIsOver(word, now) {
			atomic.CompareAndSwapUint64(&f.words[i], word, 0)
		}
	}
	for number := range uint64(image.ReplyBuckets) {
		shift := number % 2 * 32
		have := uint32(atomic.LoadUint64(&f.bits[number/2]) >> shift)
		used := atomic.LoadUint64(&f.used[number/64])>>(number%64)&1 != 0
		if have == 0 && !used { // no bits to clear; the program writes a word before it sets the word's bits
			continue
		}
		needless := have &^ f.needs(number)
		if needless != 0 {
			atomic.AndUint64(&f.bits[number/2], ^(uint64(needless) << shift))
		}
		if used && f.needs(number) == 0 {
			atomic.AndUint64(&f.used[number/64], ^(uint64(1) << (number % 64)))
		}
		if bits := f.needs(number); bits != 0 && (needless != 0 || used) {
			f.set(number, bits)
		}
	}
}

// Occupancy counts the words in the table that have not expired, by kind.
type Occupancy struct {
	Flows int // flows that started inside, and identifiers that services have issued
	Known int // known clients of protected UDP services
	New   int // clients of protected UDP services that are not known yet
	Fit   int // the total number of words in the table
}

// Occupancy counts the words in the table that have not expired.
func (f *ReplyFlows) Occupancy() Occupancy {
	now, n := replyNow(), Occupancy{Fit: len(f.words)}
	for i := range f.used {
		for rest := atomic.LoadUint64(&f.used[i]); rest != 0; rest &= rest - 1 {
			for _, word := range f.bucket(uint64(64*i + bits.TrailingZeros64(rest))) {
				if replyIsOver(word, now) {
					continue
				}
				switch word >> replyStateShift & 15 {
				case image.ReplyClient:
					n.Known++
				case image.ReplyClientNew:
					n.New++
				default:
					n.Flows++
				}
			}
		}
	}
	return n
}

// Len returns the number of words that have not expired, and the total number of words in the table.
func (f *ReplyFlows) Len() (used, fit int) {
	n := f.Occupancy()
	return n.Flows + n.Known + n.New, n.Fit
}

// replyNow returns the present time in the unit of the table: reply_now() of bpf/replyflow.h.
func replyNow() uint64 { return uint64(image.Monotonic()) >> replyUnit & replySeenMask }

// replyIsOver reports whether a word has expired: reply_is_over() of bpf/replyflow.h. It returns true for an empty word.
func replyIsOver(word, now uint64) bool {
	state := word >> replyStateShift & 15
	return state == 0 || (now+1-word)&replySeenMask > image.ReplyLife[state]+1
}

// ReplyCounts counts reply flows that found no free slot.
type ReplyCounts struct {
	Displaced uint64 // flows that displaced another one
	Refused   uint64 // flows that were not added, because none could be displaced
}

// ReplyCounts reads the counts of the generation. They are zero when it records no flows.
func (g *Generation) ReplyCounts() (sum ReplyCounts, err error) {
	m, err := g.open(image.ReplyCounts)
	if m == nil || err != nil {
		return sum, err
	}
	defer m.Close()
	var each []ReplyCounts
	if err := m.Lookup(uint32(0), &each); err != nil {
		return sum, fmt.Errorf("map %s: %w", image.ReplyCounts, err)
	}
	for _, c := range each {
		sum.Displaced, sum.Refused = sum.Displaced+c.Displaced, sum.Refused+c.Refused
	}
	return sum, nil
}

// OpenFlows lists the TCP and UDP flows that are open in the kernel: flows of connected sockets in this network namespace, and flows of conntrack. It
// lists a flow of conntrack for each side of this host on which its packets may arrive. It leaves out flows of this host to itself: a packet from
// outside with an own source address is never a reply to such a flow.
func OpenFlows() (list []ReplyFlow, err error) {
	list, err = connectedFlows()
	if err != nil {
		return nil, err
	}
	tracked, err := trackedFlows()
	own, ownErr := ownAddresses()
	return slices.DeleteFunc(append(list, tracked...), func(f ReplyFlow) bool { return withItself(f, own) }), errors.Join(err, ownErr)
}

// ownAddresses returns the addresses of the devices of this network namespace.
func ownAddresses() (map[netip.Addr]bool, error) {
	list, err := sockets.OwnAddresses()
	own := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		own[a] = true
	}
	return own, err
}

// withItself reports whether the other end of a flow is also this host.
func withItself(f ReplyFlow, own map[netip.Addr]bool) bool {
	other := f.Other.Addr().WithZone("")
	return other.IsLoopback() || own[other]
}

// TrackConnected adds the flows of connected sockets to conntrack, except flows for which but returns true. Conntrack may not have seen packets of
// these flows, and would treat the next packet as the first of a flow. TrackConnected leaves half of conntrack's table free. An error concerns only
// some of the flows; the other flows are added.
func TrackConnected(but func(ReplyFlow) bool) error {
	const day = 24 * 60 * 60
	list, err := connectedFlows()
	if err != nil {
		return err
	}
	free := trackedFree()
	own, err := ownAddresses()
	errs := []error{err}
	for _, f := range list {
		if but(f) || f.Opening || withItself(f, own) {
			continue
		}
		if free--; free < 0 {
			return errors.Join(append(errs, errors.New("more flows are open than half of nf_conntrack_max"))...)
		}
		family, flow := netlink.InetFamily(unix.AF_INET), &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 180, Forward: tupleOf(f.Proto, f.Own, f.Other), Reverse: tupleOf(f.Proto, f.Other, f.Own),
		}
		if f.Own.Addr().Is6() {
			family, flow.FamilyType = unix.AF_INET6, unix.AF_INET6
		}
		if f.Proto == unix.IPPROTO_TCP {
			flow.TimeOut, flow.ProtoInfo = day, &netlink.ProtoInfoTCP{State: trackedEstablished}
		}
		err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow)
		if err != nil && !errors.Is(err, unix.EEXIST) && len(errs) < 4 {
			errs = append(errs, fmt.Errorf("the flow from %v to %v: %w", f.Own, f.Other, err))
		}
	}
	return errors.Join(errs...)
}

// trackedFree returns the number of flows that can be added until the table of conntrack is half full.
func trackedFree() int {
	most, err := trackedNumber("max")
	if err != nil {
		return math.MaxInt
	}
	has, _ := trackedNumber("count")
	return most/2 - has
}

// trackedNumber reads a number about conntrack from /proc/sys.
func trackedNumber(name string) (int, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}

func tupleOf(proto uint8, from, to netip.AddrPort) netlink.IPTuple {
	return netlink.IPTuple{Protocol: proto, SrcIP: from.Addr().AsSlice(), SrcPort: from.Port(), DstIP: to.Addr().AsSlice(), DstPort: to.Port()}
}

// Listening returns the TCP ports on which sockets of this network namespace listen.
func Listening() (map[uint16]bool, error) {
	ports := map[uint16]bool{}
	err := eachSocket(netlink.SocketDiagTCP, func(s *netlink.Socket) {
		if s.State == netlink.TCP_LISTEN {
			ports[s.ID.SourcePort] = true
		}
	})
	if err != nil {
		return nil, err
	}
	return ports, nil
}

// connectedFlows returns the flows of connected sockets of this network namespace.
func connectedFlows() (list []ReplyFlow, err error) {
	add := func(proto uint8, s *netlink.Socket, opening bool) {
		if s.ID.DestinationPort != 0 {
			list = append(list, ReplyFlow{
				proto, addrPort(s.ID.Source, s.ID.SourcePort), addrPort(s.ID.Destination, s.ID.DestinationPort), opening,
			})
		}
	}
	err = eachSocket(netlink.SocketDiagTCP, func(s *netlink.Socket) {
		opening := s.State == netlink.TCP_SYN_SENT
		if opening || s.State != netlink.TCP_TIME_WAIT && stateOfSocket(s.State) != None {
			add(unix.IPPROTO_TCP, s, opening)
		}
	})
	if err == nil {
		err = eachSocket(netlink.SocketDiagUDP, func(s *netlink.Socket) { add(unix.IPPROTO_UDP, s, false) })
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// trackedFlows returns the flows of conntrack in the direction of replies. It returns open connections in both directions.
func trackedFlows() (list []ReplyFlow, err error) {
	err = eachTracked(func(flow *netlink.ConntrackFlow) {
		proto := flow.Forward.Protocol
		if proto != unix.IPPROTO_TCP && proto != unix.IPPROTO_UDP {
			return
		}
		tuples := []netlink.IPTuple{flow.Reverse} // the direction in which replies arrive
		if stateOfTracked(flow) != None {
			tuples = append(tuples, flow.Forward) // a connection continues in both directions, whichever side opened it
		}
		for _, t := range tuples {
			list = append(list, ReplyFlow{Proto: proto, Own: addrPort(t.DstIP, t.DstPort), Other: addrPort(t.SrcIP, t.SrcPort)})
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
