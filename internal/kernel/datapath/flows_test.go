// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// anyConnection returns a random connection to the protected port, of either family.
func anyConnection(r *rand.Rand) datapath.Connection {
	addr := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	}
	if r.IntN(2) == 0 {
		addr = func() netip.Addr {
			a := [16]byte{0x20, 1, 0xd, 0xb8}
			for i := 4; i < 16; i++ {
				a[i] = byte(r.Uint32())
			}
			return netip.AddrFrom16(a)
		}
	}
	return datapath.Connection{
		Client: netip.AddrPortFrom(addr(), uint16(1024+r.IntN(60000))), Server: netip.AddrPortFrom(addr(), guardedPort),
	}
}

// table returns the connection table of a program.
func table(t *testing.T, p *datapath.Program) *datapath.Table {
	t.Helper()
	f, err := p.Flows()
	if err != nil || f == nil {
		t.Fatalf("the table of flows: %v, %v", f, err)
	}
	t.Cleanup(f.Close)
	return f
}

// TestFlows checks that programs pass packets of the connections in their table, and drop all other packets.
func TestFlows(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	p := loadInside(t, protecting(t, 1000))
	flows := table(t, p)
	for i := range 300 {
		c := anyConnection(r)
		segment := frame(t, fmt.Sprintf("tcp %s > %s A", c.Client, c.Server))
		if got := run(t, p.Native(), segment); got != xdpDrop {
			t.Fatalf("%d: a segment of no connection gets %d", i, got)
		}
		flows.Add([]datapath.Connection{c}, datapath.Established)
		if got := run(t, p.Native(), segment); got != xdpPass {
			t.Fatalf("%d: a segment of %v gets %d", i, c, got)
		}
		if got := flows.State(c); got != datapath.Established {
			t.Errorf("%d: the table says %d", i, got)
		}
		c.Client = netip.AddrPortFrom(c.Client.Addr(), c.Client.Port()^1)
		if got := flows.State(c); got != datapath.None {
			t.Errorf("%d: the table says %d of another port", i, got)
		}
	}
	if used, fit := flows.Len(); used != 300 || fit < 1000 {
		t.Errorf("the table has %d flows of %d, want 300 of at least 1000", used, fit)
	}
	for _, test := range []struct {
		state     datapath.FlowState
		ago, want int
	}{
		{datapath.Established, 86000, 300}, {datapath.Established, 87000, 0}, {datapath.Lasting, 86000, 300},
		{datapath.Proved, -2, 300}, {datapath.Proved, 140, 0}, {datapath.Reopened, 140, 0},
		{datapath.Closing, 100, 300}, {datapath.Closing, 140, 0},
	} {
		seen(t, p, test.state, test.ago)
		if used, _ := flows.Len(); used != test.want {
			t.Errorf("state %d, seen %d s ago: the table has %d flows, want %d", test.state, test.ago, used, test.want)
		}
	}
}

// seen sets the state of all connections in the table of a program, and the seconds since their last packet. bpf/flow.h describes the bits of a word.
func seen(t *testing.T, p *datapath.Program, state datapath.FlowState, ago int) {
	t.Helper()
	memory, release, err := p.Memory(image.Flows)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	at := (uint64(image.Monotonic().Seconds()) - uint64(ago)) & (1<<24 - 1)
	words := memory[image.Flows]
	for i := 0; i < len(words); i += 8 {
		if word := binary.NativeEndian.Uint64(words[i:]); word != 0 {
			binary.NativeEndian.PutUint64(words[i:], word>>27<<27|uint64(state)<<24|at)
		}
	}
}

// TestFlowsFull adds more connections than fit. Only connections without space may be lost.
func TestFlowsFull(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	flows := table(t, loadInside(t, protecting(t, 200)))
	_, fit := flows.Len()
	var list []datapath.Connection
	for range 4 * fit {
		list = append(list, anyConnection(r))
	}
	flows.Add(list, datapath.Established)
	flows.Add(list[len(list)-1:], datapath.Established)
	if used, _ := flows.Len(); used > fit || used < fit*9/10 {
		t.Errorf("the table has %d flows of %d", used, fit)
	}
	if got := flows.State(list[len(list)-1]); got != datapath.Established {
		t.Errorf("the table says %d of the last", got)
	}
}

// TestPreload finds connections that were opened before a service is protected: of both families, and IPv4 connections of IPv6 sockets. It must not
// find a connection whose handshake is not complete.
func TestPreload(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	listener := serve(t, guardedPort, 10)
	serve(t, plainPort, 10)
	var want []datapath.Connection
	for i, server := range []string{web4, web6} {
		c := dial(t, there, server, guardedPort, "hello")
		accepted := accept(t, listener)
		if i == 1 { // now this end waits for the other end to close
			received(t, accepted, "hello")
			accepted.Close()
		}
		want = append(want, datapath.Connection{Client: addrOf(c.LocalAddr()), Server: addrOf(c.RemoteAddr())})
		dial(t, there, server, plainPort, "hello")
	}
	there.Do(func() {
		if err := testutil.Send("fw1", "tcp 192.0.2.9:5 > "+web4+":80 S", 1); err != nil {
			t.Error(err)
		}
	})
	p := loadInside(t, protecting(t, 1000))
	flows := table(t, p)
	n, err := flows.Preload(func(port uint16) bool { return port == guardedPort })
	if n != len(want) || err != nil {
		t.Errorf("found %d connections, %v, want %d", n, err, len(want))
	}
	for i, c := range want {
		if got, state := flows.State(c), []datapath.FlowState{datapath.Lasting, datapath.Closing}[i]; got != state {
			t.Errorf("%v has the state %d, want %d", c, got, state)
		}
		if got := run(t, p.Native(), frame(t, fmt.Sprintf("tcp %s > %s A", c.Client, c.Server))); got != xdpPass {
			t.Errorf("a segment of %v gets %d", c, got)
		}
	}
	if n, err := flows.PreloadTracked(func(uint16) bool { return true }); n != 0 || err != nil {
		t.Errorf("the kernel tracks %d connections: %v", n, err)
	}
}

// TestConnectionsStay replaces the program. The new program must know the connections of the old one, and must accept the cookies that it sent.
func TestConnectionsStay(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	s := locked(t)
	listener := serve(t, guardedPort, 10)
	old := protected(t, s)
	c := dial(t, there, web4, guardedPort, "hello")
	child := accept(t, listener)
	received(t, child, "hello")
	known := datapath.Connection{Client: addrOf(c.LocalAddr()), Server: addrOf(c.RemoteAddr())}

	sent(t, old)[4711] = 0x85
	for _, flows := range []int{1000, 100000} {
		from, err := s.Inherited()
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		if from.SynKeys == nil || from.Flows == nil || from.FlowFilter == nil || from.States == nil {
			t.Fatalf("inherited: %+v", from)
		}
		p, err := datapath.LoadAfter(protecting(t, flows), from)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if got := keys(t, p); got != keys(t, old) {
			t.Errorf("for %d flows, the keys are others", flows)
		}
		if notes := sent(t, p); notes[4711] != 0x85 || notes[4712] != 0 {
			t.Errorf("for %d flows, the notes of cookies are %#x, %#x", flows, notes[4711], notes[4712])
		}
		stays := table(t, p).State(known) != datapath.None
		if stays != (flows == 1000) {
			t.Errorf("for %d flows, the connection is known: %v", flows, stays)
		}
		state := make([]byte, image.ProtectionStateSize)
		state[0] = 7
		if err := old.Map(image.ProtectionStates).Put(uint32(0), state); err != nil {
			t.Fatal(err)
		}
		if err := p.CarryStates(from.States, map[int]int{0: 0}); err != nil {
			t.Error(err)
		}
		if got := stateOf(t, p); got[0] != 7 {
			t.Errorf("for %d flows, the state is %x", flows, got)
		}
	}
}

// TestCookiesExpected replaces a program that has sent cookies without recording them. The new program must accept a cookie for any connection.
func TestCookiesExpected(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	clients(t)
	s := locked(t)
	protected(t, s)
	from, err := s.Inherited()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	from.CookiesSent.Close()
	from.CookiesSent = nil
	slot := func() byte {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		return 0x80 | byte(now.Nano()>>36)
	}
	first := slot()
	p, err := datapath.LoadAfter(protecting(t, 1000), from)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	notes := sent(t, p)
	last := slot()
	for i, note := range notes {
		if note != first && note != last {
			t.Fatalf("note %d is %#x, want %#x or %#x", i, note, first, last)
		}
	}
}

// sent returns the memory of the map that records sent cookies. It is valid until the test ends.
func sent(t *testing.T, p *datapath.Program) []byte {
	t.Helper()
	memory, release, err := p.Memory(image.CookiesSent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return memory[image.CookiesSent]
}

// keys returns the words of struct syn_keys of bpf/flow.h.
func keys(t *testing.T, p *datapath.Program) (k [image.SynKeysSize / 8]uint64) {
	t.Helper()
	if err := p.Map(image.SynKeys).Lookup(uint32(0), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeys checks that keys are random, and that they are rotated in the order that bpf/flow.h needs.
func TestKeys(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	if did, err := s.RotateKeys(); did || err != nil {
		t.Errorf("nothing runs, and its keys are rotated: %v, %v", did, err)
	}
	p := protected(t, s)
	before := keys(t, p)
	for i, word := range before {
		if (word == 0) != (i == 4) { // all words but the time are random
			t.Errorf("word %d of the keys is %x", i, word)
		}
	}
	if before == keys(t, loadInside(t, protecting(t, 10))) {
		t.Error("two programs have the same keys")
	}
	if did, err := s.RotateKeys(); !did || err != nil {
		t.Fatalf("keys are not rotated: %v, %v", did, err)
	}
	after := keys(t, p)
	if [2]uint64(after[2:]) != [2]uint64(before[:]) || [2]uint64(after[:]) == [2]uint64(before[:]) ||
		[2]uint64(after[5:]) != [2]uint64(before[5:]) || after[4] == 0 {
		t.Errorf("keys\n%x were rotated to\n%x", before, after)
	}
	if did, err := s.RotateKeys(); did || err != nil {
		t.Errorf("keys are rotated again, with cookies on their way: %v, %v", did, err)
	}
	if after != keys(t, p) {
		t.Error("keys changed")
	}
}
