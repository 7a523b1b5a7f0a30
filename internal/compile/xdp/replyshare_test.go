package xdp_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// forwarded is struct __sk_buff of a packet that came in by another device.
func forwarded() []byte {
	const size, ingressIfindex = 192, 36
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b[ingressIfindex:], 1)
	return b
}

// TestReplyFlowsShared has a router whose table one client fills: it opens flows without end, as a scan does. It displaces its own, and none
// of others that were answered; and others can go on opening flows.
func TestReplyFlowsShared(t *testing.T) {
	testutil.RequireRoot(t)
	x, err := xdpgen.Generate(replying(), xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	const bits = 8 // buckets: 2,048 flows, so that the test takes no minute
	x.Entry = nil  // which has the size of the usual table
	x.Constants["reply_shift"] = uint32(64 - bits - 3)
	x.Shapes[image.ReplyFlows] = image.Shape{ValueSize: image.ReplyBucketSize << bits, Entries: 1}
	x.Shapes[image.ReplyFilter] = image.Shape{ValueSize: image.ReplySecretsSize + 1<<bits, Entries: 1}
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
	scan := func(n int) {
		for i := range n {
			leave(fmt.Sprintf("tcp 10.0.0.66:%d > 198.51.%d.%d:%d S", 1024+i%50_000, i/200%100, 1+i%200, 1+i%1000))
		}
	}
	const others = 300
	out := func(i int) string { return fmt.Sprintf("tcp 10.0.0.%d:5000 > 203.0.113.%d:443", 1+i%30, 1+i/30) }
	in := func(i int) string { return fmt.Sprintf("tcp 203.0.113.%d:443 > 10.0.0.%d:5000", 1+i/30, 1+i%30) }
	for i := range others {
		leave(out(i) + " S")
		frame := subject.FramesOf(t, in(i)+" SA")[0].Frame
		if got, _, err := p.general(frame); err != nil || !got {
			t.Fatalf("answer %d passes is %t, %v", i, got, err)
		}
	}
	scan(testutil.Scaled(20_000, 1_000_000))
	lost := 0
	for i := range others {
		if !passes(in(i) + " A") {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("of %d flows of others %d are forgotten", others, lost)
	}
	refused := 0
	for i := range 300 {
		leave(fmt.Sprintf("tcp 10.0.0.%d:6000 > 203.0.113.%d:443 S", 1+i%30, 1+i/30))
		scan(5)
		if !passes(fmt.Sprintf("tcp 203.0.113.%d:443 > 10.0.0.%d:6000 SA", 1+i/30, 1+i%30)) {
			refused++
		}
	}
	if refused > 6 { // a client with two flows in a bucket may lose the newer one
		t.Errorf("of 300 new flows of others %d are refused", refused)
	}
	used, fit := table.Len()
	t.Logf("%d flows of %d", used, fit)
}

// general has general() of bpf/floodwall.c decide a frame, and act on it.
func (p talker) general(frame []byte) (passes bool, action uint32, err error) {
	action, _, err = p.Native().Test(frame)
	return action == 2, action, err
}
