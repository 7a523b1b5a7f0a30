// SPDX-License-Identifier: Apache-2.0

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

// TestHostFlowOfClientsPort checks flows that this host opened from the port of a service before the service was protected. They must not make a
// client known. A client that is answered later counts as new.
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

// restate changes the state of all flows.
func (f flooded) restate(t *testing.T, state uint64) {
	t.Helper()
	memory, release, err := f.Memory(image.ReplyFlows)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for page := range usedPages(memory[image.ReplyFlows]) {
		for words := page; len(words) > 0; words = words[8:] {
			if word := binary.NativeEndian.Uint64(words); word != 0 {
				binary.NativeEndian.PutUint64(words, word&^(15<<16)|state<<16)
			}
		}
	}
}

// TestManyOwnAddresses plays an attacker who makes 1,000 own addresses known, and then floods from them. Each address must pass no more packets than
// a known client may send. In addition, only the packets within the limits may pass.
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
	// Immediately, each address passes 32 sampled packets, each of which stands for 16 packets. Then it passes 160 packets per second. The bound adds
	// a fourth of that for chance.
	most := addresses * (32*16 + int(160*took)) * 5 / 4
	if n := passed["game:known"]; n < addresses*100 || n > most {
		t.Errorf("of %d packets of known clients %d pass in %.1f s, want %d at most: %v", addresses*packets, n, took, most, passed)
	}
	if n := passed["game"] + passed["game:again"]; n > 200+int(100*took) {
		t.Errorf("%d packets pass beside those of known clients: %v", n, passed)
	}
	t.Logf("in %.1f s: %v", took, passed)
}

// TestClientsDisplace fills a bucket with flows of this host and of known clients, and then answers new clients of the same bucket. These must not
// displace a flow of this host or a known client.
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
	client := func() (in, out []byte) { // returns packets of a new client in the bucket
		who := subject.ClientInReplyBucket(r, secret, netip.AddrPortFrom(own, 7000), func(b uint64) bool { return b == 5 })
		return subject.FramesOf(t, fmt.Sprintf("udp %s > %s:7000", who, own))[0].Frame, subject.FramesOf(t, fmt.Sprintf("udp %s:7000 > %s", own, who))[0].Frame
	}
	var known [][]byte
	for range 3 {
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
			t.Errorf("known client %d of 3 is counted at %s after 100 new ones in its bucket", i, reason)
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
