// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// replying returns a program that passes a service and replies, and drops everything else.
func replying() *ir.Program {
	return &ir.Program{Default: ir.Drop, Rules: []ir.Rule{
		{Name: "web", Kind: ir.RuleKindService, Match: []ir.Match{{Field: packet.DPort, Values: []ir.Range{{First: 80, Last: 80}}}}},
		{Name: "replies", Kind: ir.RuleKindService, Reply: true, Match: []ir.Match{{Field: packet.State, Values: []ir.Range{{First: packet.StateEstablished, Last: packet.StateRelated}}}}},
	}}
}

// talker is a loaded program that gets outgoing and incoming packets.
type talker struct{ *datapath.Program }

func loadReplies(t testing.TB) talker {
	t.Helper()
	x, err := xdpgen.Generate(replying(), xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	return talker{(&subject.Subject{Program: replying()}).Load(t, x)}
}

func (p talker) leave(t testing.TB, frame []byte) {
	t.Helper()
	if got, _, err := p.Egress().Test(frame); err != nil || got != 0xffffffff {
		t.Fatalf("what leaves gets %d, %v", got, err)
	}
}

// arrive sends a frame through the entry.
func (p talker) arrive(t testing.TB, frame []byte) bool {
	t.Helper()
	const drop, pass = 1, 2
	got, _, err := p.Native().Test(frame)
	if err != nil || got != drop && got != pass {
		t.Fatalf("what arrives gets %d, %v", got, err)
	}
	return got == pass
}

// TestReplies plays conversations line by line. In the notation, < arrives and is dropped, <+ arrives and passes, and > leaves.
func TestReplies(t *testing.T) {
	testutil.RequireRoot(t)
	for name, talk := range map[string]string{
		"tcp": `<  tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
>  tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
<  tcp 198.51.100.7:443 > 192.0.2.1:4001 SA
<  tcp 198.51.100.7:444 > 192.0.2.1:4000 SA
<  tcp 198.51.100.8:443 > 192.0.2.1:4000 SA
<  udp 198.51.100.7:443 > 192.0.2.1:4000
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A vlan=7
<  tcp 198.51.100.7:443 > 192.0.2.1:4000 S`,
		"tcp6": `<  tcp [2001:db8::7]:443 > [2001:db8::1]:4000 SA
>  tcp [2001:db8::1]:4000 > [2001:db8::7]:443 S
<+ tcp [2001:db8::7]:443 > [2001:db8::1]:4000 SA
<  tcp [2001:db8::8]:443 > [2001:db8::1]:4000 SA`,
		"rst": `>  tcp 192.0.2.1:4000 > 198.51.100.7:443 RA
<  tcp 198.51.100.7:443 > 192.0.2.1:4000 A
>  tcp 192.0.2.1:4000 > 198.51.100.7:443 SA
<  tcp 198.51.100.7:443 > 192.0.2.1:4000 A
>  tcp 192.0.2.1:4000 > 198.51.100.7:443 A
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`,
		"service": `>  tcp 192.0.2.1:80 > 198.51.100.7:443 A
<+ tcp 198.51.100.7:443 > 192.0.2.1:80 A`,
		"udp": `<  udp 198.51.100.7:53 > 192.0.2.1:4000
<  udp 198.51.100.7:53 > 192.0.2.1:4000 frag=later
>  udp 192.0.2.1:4000 > 198.51.100.7:53
<+ udp 198.51.100.7:53 > 192.0.2.1:4000
<+ udp 198.51.100.7:53 > 192.0.2.1:4000 frag=first
<+ udp 198.51.100.7:53 > 192.0.2.1:4000 frag=later
<  udp 198.51.100.8:53 > 192.0.2.1:4000 frag=later`,
		"echo": `<  icmp 198.51.100.7 > 192.0.2.1 type=0
>  icmp 192.0.2.1 > 198.51.100.7 type=8
<+ icmp 198.51.100.7 > 192.0.2.1 type=0
<  icmp 198.51.100.7 > 192.0.2.1 type=8
<  icmp 198.51.100.8 > 192.0.2.1 type=0`,
		"bare": `<  gre 198.51.100.7 > 192.0.2.1
>  gre 192.0.2.1 > 198.51.100.7
<+ gre 198.51.100.7 > 192.0.2.1
<  esp 198.51.100.7 > 192.0.2.1`,
	} {
		t.Run(name, func(t *testing.T) {
			p := loadReplies(t)
			for _, line := range strings.Split(talk, "\n") {
				way, packet, _ := strings.Cut(line, " ")
				frame := subject.FramesOf(t, strings.TrimSpace(packet))[0].Frame
				if way == ">" {
					p.leave(t, frame)
					continue
				}
				if got := p.arrive(t, frame); got != (way == "<+") {
					t.Errorf("%s: passes is %t", packet, got)
				}
				a, err := p.AskAt(datapath.Question{Frame: frame})
				if err != nil || (ir.Verdict(a.Verdict) == ir.Pass) != (way == "<+") {
					t.Errorf("%s: asked, the verdict is %d, %v", packet, a.Verdict, err)
				}
			}
		})
	}
}

// TestReplyFlowsAdded stores flows from user space, as `apply` does with open flows. Their replies must pass, but no other packets.
func TestReplyFlowsAdded(t *testing.T) {
	testutil.RequireRoot(t)
	p := loadReplies(t)
	table, err := p.ReplyFlows()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	ends := netip.MustParseAddrPort
	table.Add([]datapath.ReplyFlow{
		{Proto: packet.ProtoTCP, Own: ends("192.0.2.1:4000"), Other: ends("198.51.100.7:443")},
		{Proto: packet.ProtoUDP, Own: ends("192.0.2.1:4001"), Other: ends("198.51.100.7:53")},
		{Proto: packet.ProtoTCP, Own: ends("[2001:db8::1]:4000"), Other: ends("[2001:db8::7]:443")},
	})
	for line, want := range map[string]bool{
		"tcp 198.51.100.7:443 > 192.0.2.1:4000 A":      true,
		"udp 198.51.100.7:443 > 192.0.2.1:4000":        false,
		"udp 198.51.100.7:53 > 192.0.2.1:4001":         true,
		"tcp 198.51.100.7:53 > 192.0.2.1:4001 A":       false,
		"tcp [2001:db8::7]:443 > [2001:db8::1]:4000 A": true,
		"tcp [2001:db8::7]:443 > [2001:db8::2]:4000 A": false,
		"tcp [2001:db8::1]:4000 > [2001:db8::7]:443 A": false,
		"tcp 192.0.2.1:4000 > 198.51.100.7:443 A":      false,
	} {
		if got := p.arrive(t, subject.FramesOf(t, line)[0].Frame); got != want {
			t.Errorf("%s: passes is %t", line, got)
		}
	}
	if used, fit := table.Len(); used != 3 || fit < 1_000_000 {
		t.Errorf("%d flows of %d", used, fit)
	}
}

// TestReplyErrors sends ICMP errors about a packet that has left, and about other packets. An error must pass only if it is about the packet that has
// left and goes to the sender of that packet.
func TestReplyErrors(t *testing.T) {
	testutil.RequireRoot(t)
	for _, test := range []struct {
		left, quoted, outer string
		want                bool
	}{
		{"tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "icmp 203.0.113.9 > 192.0.2.1 type=11", true},
		{"tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "icmp 203.0.113.9 > 192.0.2.2 type=11", false},
		{"tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "tcp 192.0.2.1:4001 > 198.51.100.7:443 S", "icmp 203.0.113.9 > 192.0.2.1 type=11", false},
		{"tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "tcp 192.0.2.1:4000 > 198.51.100.7:443 S", "icmp 203.0.113.9 > 192.0.2.1 type=5", false},
		{"udp [2001:db8::1]:4000 > [2001:db8::7]:53", "udp [2001:db8::1]:4000 > [2001:db8::7]:53", "icmpv6 2001:db8:9::9 > 2001:db8::1 type=1", true},
		{"udp [2001:db8::1]:4000 > [2001:db8::7]:53", "udp [2001:db8::1]:4000 > [2001:db8::7]:53", "icmpv6 2001:db8:9::9 > 2001:db8::2 type=1", false},
		{"udp [2001:db8::1]:4000 > [2001:db8::7]:53", "udp [2001:db8::1]:4000 > [2001:db8::7]:53", "icmpv6 2001:db8:9::9 > 2001:db8::1 type=100", false},
		{"icmp 192.0.2.1 > 198.51.100.7 type=8", "icmp 192.0.2.1 > 198.51.100.7 type=8", "icmp 203.0.113.9 > 192.0.2.1 type=3", true},
	} {
		p := loadReplies(t)
		p.leave(t, subject.FramesOf(t, test.left)[0].Frame)
		quoted := subject.FramesOf(t, test.quoted)[0].Frame[14:]
		frame := subject.FramesOf(t, fmt.Sprintf("%s payload=0x%x", test.outer, quoted))[0].Frame
		if got := p.arrive(t, frame); got != test.want {
			t.Errorf("%s about %s: passes is %t", test.outer, test.quoted, got)
		}
	}
}

// TestReplyFlowsOver checks the table entries of ended flows, also after their times have wrapped around. They must pass no packet, and a new flow
// must be able to take their place.
func TestReplyFlowsOver(t *testing.T) {
	testutil.RequireRoot(t)
	const line, unit = "udp 198.51.100.7:53 > 192.0.2.1:4001", uint64(1) << 16
	flow := []datapath.ReplyFlow{{Proto: packet.ProtoUDP, Own: netip.MustParseAddrPort("192.0.2.1:4001"), Other: netip.MustParseAddrPort("198.51.100.7:53")}}
	for age, want := range map[uint64]bool{0: true, 40: true, 44: false, 1000: false, unit / 2: false, unit/2 + 100: false, unit - 100: false, unit - 1: true} {
		p := loadReplies(t)
		table, err := p.ReplyFlows()
		if err != nil {
			t.Fatal(err)
		}
		table.Add(flow)
		p.age(t, age)
		frame := subject.FramesOf(t, line)[0].Frame
		if got := p.arrive(t, frame); got != want {
			t.Errorf("a flow of %d units before passes a reply: %t", age, got)
		}
		if want {
			table.Close()
			continue
		}
		if used, _ := table.Len(); used != 0 {
			t.Errorf("a flow of %d units before counts", age)
		}
		if table.Add(flow); !p.arrive(t, frame) {
			t.Errorf("a flow of %d units before keeps an open one out", age)
		}
		table.Close()
	}
}

// age makes all flows of the table older, in units of 2^32 ns.
func (p talker) age(t *testing.T, units uint64) {
	t.Helper()
	memory, release, err := p.Memory(image.ReplyFlows)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for page := range usedPages(memory[image.ReplyFlows]) {
		for at := 0; at < len(page); at += 8 {
			if seen := binary.LittleEndian.Uint16(page[at:]); binary.LittleEndian.Uint64(page[at:]) != 0 {
				binary.LittleEndian.PutUint16(page[at:], seen-uint16(units))
			}
		}
	}
}

// usedPages returns the pages of a map that are not empty. Few pages of the table of flows are used in a test, and a page is compared in a fraction of
// the time that a loop over its words takes.
func usedPages(memory []byte) iter.Seq[[]byte] {
	var empty [4096]byte
	return func(yield func([]byte) bool) {
		for page := range slices.Chunk(memory, len(empty)) {
			if !bytes.Equal(page, empty[:len(page)]) && !yield(page) {
				return
			}
		}
	}
}
