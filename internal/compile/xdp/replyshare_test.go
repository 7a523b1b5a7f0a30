// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// forwarded returns the struct __sk_buff of a packet that came in through another device.
func forwarded() []byte {
	const size, ingressIfindex = 192, 36
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b[ingressIfindex:], 1)
	return b
}

// conversation has the address and port of this side, and those of the other side.
type conversation struct{ own, other netip.AddrPort }

func (c conversation) out() string { return fmt.Sprintf("tcp %s > %s", c.own, c.other) }
func (c conversation) in() string  { return fmt.Sprintf("tcp %s > %s", c.other, c.own) }

// TestReplyFlowsShared checks a router whose table one client fills by opening flows without end, as a scan does. These flows must displace only the
// client's own flows, and no answered flows of other clients. Other clients must still be able to open flows.
func TestReplyFlowsShared(t *testing.T) {
	testutil.RequireRoot(t)
	x, err := xdpgen.Generate(replying(), xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	x.Entry = nil // makes general() decide all frames
	p := talker{(&subject.Subject{Program: replying()}).Load(t, x)}
	from := forwarded()
	leave := func(line string) {
		t.Helper()
		frame := subject.FramesOf(t, line)[0].Frame
		if _, err := p.Egress().Run(&ebpf.RunOptions{Data: frame, Context: from, ContextOut: make([]byte, len(from)), Repeat: 1}); err != nil {
			t.Fatal(err)
		}
	}
	passes := func(line string) bool {
		t.Helper()
		a, err := p.AskAt(datapath.Question{Frame: subject.FramesOf(t, line)[0].Frame, General: true})
		if err != nil {
			t.Fatal(err)
		}
		return ir.Verdict(a.Verdict) == ir.Pass
	}
	table, err := p.ReplyFlows()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	memory, release, err := p.Memory(image.ReplyFilter)
	if err != nil {
		t.Fatal(err)
	}
	secret := image.ReplySecretsOf(memory[image.ReplyFilter])
	release()
	const buckets = 256 // number of buckets that get flows; 2,048 flows fill them
	r := rand.New(rand.NewPCG(1, 2))
	flow := func(client int, wanted func(uint64) bool) conversation { // a new one of a client
		own, other := subject.InReplyBucket(r, secret, netip.AddrFrom4([4]byte{10, 0, 0, byte(client)}), wanted)
		return conversation{own, other}
	}
	scan := func(n int) {
		for range n {
			leave(flow(66, func(b uint64) bool { return b < buckets }).out() + " S")
		}
	}
	const clients = 30
	others := make([]conversation, 300)
	for i := range others {
		others[i] = flow(1+i%clients, func(b uint64) bool { return b == uint64(i%buckets) }) // two in a bucket at most: of eight answered ones, a client may lose one of two
		leave(others[i].out() + " S")
		frame := subject.FramesOf(t, others[i].in()+" SA")[0].Frame
		if got, _, err := p.general(frame); err != nil || !got {
			t.Fatalf("answer %d passes is %t, %v", i, got, err)
		}
	}
	scan(testutil.Scaled(20_000, 1_000_000))
	lost := 0
	for _, f := range others {
		if !passes(f.in() + " A") {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("of %d flows of others %d are forgotten", len(others), lost)
	}
	refused := 0
	for i := range 300 {
		f := flow(1+i%clients, func(b uint64) bool { return b < buckets })
		leave(f.out() + " S")
		scan(5)
		if !passes(f.in() + " SA") {
			refused++
		}
	}
	if refused > 6 { // a client with two flows in a bucket may lose the newer one
		t.Errorf("of 300 new flows of others %d are refused", refused)
	}
	used, fit := table.Len()
	t.Logf("%d flows of %d", used, fit)
}

// general sends a frame to general() of bpf/floodwall.c.
func (p talker) general(frame []byte) (passes bool, action uint32, err error) {
	action, _, err = p.Native().Test(frame)
	return action == 2, action, err
}
