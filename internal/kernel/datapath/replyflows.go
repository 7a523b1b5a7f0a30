package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ReplyFlow is a flow whose replies pass: of TCP or UDP. IPv4 addresses are not in mapped form.
type ReplyFlow struct {
	Proto      uint8          // unix.IPPROTO_TCP or IPPROTO_UDP
	Own, Other netip.AddrPort // of this side, as packets that leave have it, and of the one that answers
	Opening    bool           // it is of TCP, and nothing has come back yet
}

// ReplyFlows is the table of reply flows of a program, mapped into memory (bpf/replyflow.h).
type ReplyFlows struct {
	words    []uint64 // of all buckets
	used     []uint64 // a bit for each bucket
	bits     []uint64 // of the second filter: 32 for each bucket
	secrets  [8]uint64
	services []uint64 // a bit for each port whose flows are not noted: of TCP, then of UDP
	release  func()
}

// States of a reply flow, of enum reply_state.
const (
	replyTCPSYN  = 1
	replyTCPOpen = 3
	replyUDPOpen = 9
)

// The fields of a word, from the lowest bit on: enum in bpf/replyflow.h.
const (
	replyUnit       = 32
	replySeenMask   = 1<<16 - 1
	replyStateShift = 16
)

// ReplyFlows maps the program's table, until Close; nil when it notes none.
func (p *Program) ReplyFlows() (*ReplyFlows, error) {
	memory, release, err := p.Memory(image.ReplyFlows, image.ReplyFilter, image.Services)
	if err != nil {
		return nil, err
	}
	return newReplyFlows(memory, release), nil
}

// ReplyFlows maps the generation's table, until the generation is closed; nil when it notes none.
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

// notesReplies reports whether the generation's program notes flows. If not, it has the table in its smallest size, and the format means
// nothing.
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
	if len(table) < image.ReplyBuckets*image.ReplyBucketSize { // of the smallest size, a program leaves it alone
		release()
		return nil
	}
	used, bits := filter[image.ReplySecretsSize:], filter[image.ReplySecretsSize+image.ReplyUsedSize:]
	f := &ReplyFlows{
		words: wordsOf(table), used: wordsOf(used[:image.ReplyUsedSize]), bits: wordsOf(bits),
		services: wordsOf(memory[image.Services]), release: release,
	}
	copy(f.secrets[:], wordsOf(filter[:image.ReplySecretsSize]))
	return f
}

// Close gives up the memory.
func (f *ReplyFlows) Close() { f.release() }

// place is where a flow stands: reply_index() and reply_hash() of bpf/replyflow.h. Numbers are as packets that arrive have them, read by a
// little-endian machine.
func (f *ReplyFlows) place(flow ReplyFlow) (index, hash uint64) {
	pair := f.pair(flow.Other.Addr(), flow.Own.Addr())
	var raw [4]byte
	binary.BigEndian.PutUint16(raw[:], flow.Other.Port())
	binary.BigEndian.PutUint16(raw[2:], flow.Own.Port())
	ports, kind := uint64(binary.LittleEndian.Uint32(raw[:])), uint64(image.ReplyUDP)
	if flow.Proto == unix.IPPROTO_TCP {
		kind = image.ReplyTCP
	}
	own := flow.Own.Addr().AsSlice()
	index = (f.near(flow.Other.Addr()) + (ports<<32|uint64(binary.LittleEndian.Uint32(own[len(own)-4:])))*kind) * f.secrets[0] >> (64 - image.ReplyBucketBits)
	hash = (pair ^ f.secrets[1]) * f.secrets[2]
	return index, (hash ^ hash>>32 ^ ports ^ kind<<32) * f.secrets[3]
}

// near is the part of the other side's address that the index is of.
func (f *ReplyFlows) near(other netip.Addr) uint64 {
	if other.Is4() {
		a := other.As4()
		return uint64(binary.LittleEndian.Uint32(a[:]))
	}
	a := other.As16()
	return binary.LittleEndian.Uint64(a[8:])
}

func (f *ReplyFlows) pair(other, own netip.Addr) uint64 {
	if other.Is4() {
		a, b := other.As4(), own.As4()
		return uint64(binary.LittleEndian.Uint32(b[:]))<<32 | uint64(binary.LittleEndian.Uint32(a[:]))
	}
	sum := uint64(0)
	for i, addr := range []netip.Addr{other, own} {
		a := addr.As16()
		for half, secret := range f.secrets[4+2*i : 6+2*i] {
			word := binary.LittleEndian.Uint64(a[8*half:]) + secret
			sum += word & 0xffffffff * (word >> 32) // reply_product() of bpf/replyflow.h
		}
	}
	return sum
}

// Add stores flows that are open, and returns how many: a full bucket takes no more. One that is there stays as it is, unless it is over. Those
// of the policy's services are left out.
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

// put writes a word into a slot of a bucket whose flow is over, unless its own is there.
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

// set sets the bits of the filters that a bucket needs: those of the second last, as set_reply_bits() of bpf/replyflow.h does.
func (f *ReplyFlows) set(number uint64, bits uint32) {
	atomic.OrUint64(&f.used[number/64], 1<<(number%64))
	atomic.OrUint64(&f.bits[number/2], uint64(bits)<<(number%2*32))
}

// needs are the bits of the second filter that a bucket needs.
func (f *ReplyFlows) needs(number uint64) (bits uint32) {
	words := f.bucket(number)
	for i := range words {
		if word := atomic.LoadUint64(&words[i]); word != 0 {
			bits |= image.ReplyBits(word)
		}
	}
	return bits
}

// Sweep removes flows that are over, as times come round after three days, and clears the bits of the filters that nothing needs any more.
// The program may note flows meanwhile: see clear_reply_bits() of bpf/replyflow.h.
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
		if have == 0 && !used { // nothing to clear; the program sets what it needs after it has written
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

// Occupancy is how many words of the table have not expired.
type Occupancy struct {
	Flows int // conversations that began inside, and identifiers that services have issued
	Known int // clients of protected UDP services that are known,
	New   int // and that are not
	Fit   int // how many words there can be
}

// Occupancy counts the words of the table.
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

// Len returns the number of words in the table that have not expired, and the number that fit.
func (f *ReplyFlows) Len() (used, fit int) {
	n := f.Occupancy()
	return n.Flows + n.Known + n.New, n.Fit
}

// replyNow is reply_now() of bpf/replyflow.h.
func replyNow() uint64 { return uint64(image.Monotonic()) >> replyUnit & replySeenMask }

// replyIsOver is reply_is_over() of bpf/replyflow.h, and true of no flow.
func replyIsOver(word, now uint64) bool {
	state := word >> replyStateShift & 15
	return state == 0 || (now+1-word)&replySeenMask > image.ReplyLife[state]+1
}

// ReplyCounts are what became of reply flows that found no free place.
type ReplyCounts struct {
	Displaced uint64 // took the place of another
	Refused   uint64 // were not noted, as none could give way
}

// ReplyCounts reads the counts of the generation; zero when it notes no flows.
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

// OpenFlows lists the flows of TCP and UDP that the kernel has open: of sockets of this network namespace that are connected, and those that
// conntrack has, as their packets arrive on either side of this host.
func OpenFlows() (list []ReplyFlow, err error) {
	list, err = connectedFlows()
	if err != nil {
		return nil, err
	}
	tracked, err := trackedFlows()
	return append(list, tracked...), err
}

// TrackConnected has conntrack know the flows of connected sockets but those that are left out: it may not have looked at their packets so far,
// and would take the next one that arrives for the first of a flow. It leaves half of the table of conntrack free. The error is about some of the
// flows; the others are known.
func TrackConnected(but func(ReplyFlow) bool) error {
	const day = 24 * 60 * 60
	list, err := connectedFlows()
	if err != nil {
		return err
	}
	free := trackedFree()
	var errs []error
	for _, f := range list {
		if but(f) || f.Opening || f.Own.Addr().IsLoopback() {
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
		if err != nil && !errors.Is(err, unix.EEXIST) && len(errs) < 3 {
			errs = append(errs, fmt.Errorf("the flow from %v to %v: %w", f.Own, f.Other, err))
		}
	}
	return errors.Join(errs...)
}

// trackedFree is how many flows conntrack takes until its table is half full.
func trackedFree() int {
	most, err := trackedNumber("max")
	if err != nil {
		return math.MaxInt
	}
	has, _ := trackedNumber("count")
	return most/2 - has
}

// trackedNumber reads a number of conntrack.
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

// Listening are the ports of TCP that sockets of this network namespace listen on.
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

// connectedFlows are those of sockets of this network namespace.
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

// trackedFlows are those of conntrack, in the direction of answers, and of connections in both.
func trackedFlows() (list []ReplyFlow, err error) {
	err = eachTracked(func(flow *netlink.ConntrackFlow) {
		proto := flow.Forward.Protocol
		if proto != unix.IPPROTO_TCP && proto != unix.IPPROTO_UDP {
			return
		}
		tuples := []netlink.IPTuple{flow.Reverse} // as what answers arrives
		if stateOfTracked(flow) != None {
			tuples = append(tuples, flow.Forward) // a connection goes on, whoever began it
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
