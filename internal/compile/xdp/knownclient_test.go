package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestHostFlowOfClientsPort has flows in the table that this host began from the port of a service before that was protected. They make nobody
// known, and who is answered is a new client.
func TestHostFlowOfClientsPort(t *testing.T) {
	f := loadFlooded(t, "protect")
	for _, state := range []uint64{8, 9} { // REPLY_UDP_NEW and REPLY_UDP_OPEN of bpf/replyflow.h
		f.forget(t)
		for _, name := range []string{"A", "D"} {
			f.leave(t, subject.FramesOf(t, back(floodClients[name]))[0].Frame)
		}
		f.restate(t, state)
		for _, name := range []string{"A", "D"} {
			frame := subject.FramesOf(t, floodClients[name])[0].Frame
			for range 2 {
				if reason := f.reason(t, frame); reason != "game:calm" {
					t.Errorf("beside a flow in state %d a packet is counted at %s", state, reason)
				}
			}
			for range ir.KnownTimes {
				f.leave(t, subject.FramesOf(t, back(floodClients[name]))[0].Frame)
				f.age(t, 1)
				f.arrive(t, frame)
			}
			if reason := f.reason(t, frame); reason != "game:known" {
				t.Errorf("a client that was a flow in state %d, and is answered, is counted at %s", state, reason)
			}
		}
	}
}

// restate gives all flows another state.
func (f flooded) restate(t *testing.T, state uint64) {
	t.Helper()
	memory, release, err := f.Memory(image.ReplyFlows)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for words := memory[image.ReplyFlows]; len(words) > 0; words = words[8:] {
		if word := binary.NativeEndian.Uint64(words); word != 0 {
			binary.NativeEndian.PutUint64(words, word&^(15<<16)|state<<16)
		}
	}
}

// TestManyOwnAddresses has an attacker answer himself from 1,000 addresses of his until all are known, and then flood from them. Each passes what a known client may,
// and no more than the limits let through else.
func TestManyOwnAddresses(t *testing.T) {
	f := loadFlooded(t, "{start: 100/s, known: {rate: 160/s, burst: 160}, limit: {rate: 5/s, per: from/24/56, burst: 10}, total: {rate: 100/s, burst: 100}}")
	const addresses, packets = 1000, 1000
	var frames, answers [][]byte
	for i := range addresses {
		client := fmt.Sprintf("udp 100.%d.%d.1:5000 > 192.0.2.1:7000", 64+i/250, i%250)
		frames = append(frames, subject.FramesOf(t, client)[0].Frame)
		answers = append(answers, subject.FramesOf(t, back(client))[0].Frame)
	}
	for range ir.KnownTimes {
		f.age(t, 1)
		for i, frame := range frames {
			f.arrive(t, frame)
			f.leave(t, answers[i])
		}
	}
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	f.forgetLimits(t)
	before, began := f.counts(t), time.Now()
	for range packets {
		for _, frame := range frames {
			f.arrive(t, frame)
		}
	}
	took := time.Since(began).Seconds()
	passed := map[string]int{}
	for i, n := range f.counts(t) {
		passed[f.program.Rules[i].Name] = int(n - before[i])
	}
	// At once each passes 32 packets that are drawn, of which each stands for 16, and then 160 a second; a fourth more by chance.
	most := addresses * (32*16 + int(160*took)) * 5 / 4
	if n := passed["game:known"]; n < addresses*100 || n > most {
		t.Errorf("of %d packets of known clients %d pass in %.1f s, want %d at most: %v", addresses*packets, n, took, most, passed)
	}
	if n := passed["game"]; n > 200+int(100*took) {
		t.Errorf("%d packets pass beside those of known clients: %v", n, passed)
	}
	t.Logf("in %.1f s: %v", took, passed)
}

// TestClientsDisplace fills a bucket with flows of this host and known clients, and has new clients answered that belong there, too. None of the former is displaced.
func TestClientsDisplace(t *testing.T) {
	testutil.RequireRoot(t)
	s := subject.Lower(t, "default: drop\nservices: [{name: game, port: udp/7000, udp: protect}]\n")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	f := flooded{talker{s.Load(t, x)}, s.Program}
	secret, _, _ := f.filters(t)
	r, own := rand.New(rand.NewPCG(1, 2)), netip.MustParseAddr("192.0.2.1")
	client := func() (in, out []byte) { // a new one in the bucket
		who := subject.ClientInReplyBucket(r, secret, netip.AddrPortFrom(own, 7000), 5)
		return subject.FramesOf(t, fmt.Sprintf("udp %s > %s:7000", who, own))[0].Frame, subject.FramesOf(t, fmt.Sprintf("udp %s:7000 > %s", own, who))[0].Frame
	}
	var known [][]byte
	for range 7 {
		in, out := client()
		for range ir.KnownTimes {
			f.arrive(t, in)
			f.leave(t, out)
			f.age(t, 1)
		}
		known = append(known, in)
	}
	for range 100 {
		in, out := client()
		f.arrive(t, in)
		f.leave(t, out)
	}
	for i, in := range known {
		if reason := f.reason(t, in); reason != "game:known" {
			t.Errorf("known client %d of 7 is counted at %s after 100 new ones in its bucket", i, reason)
		}
	}
	in, out := client()
	for range ir.KnownTimes {
		f.arrive(t, in)
		f.leave(t, out)
		f.age(t, 1)
	}
	if reason := f.reason(t, in); reason != "game:known" {
		t.Errorf("the next client, for which one of the new ones gives way, is counted at %s", reason)
	}
}
