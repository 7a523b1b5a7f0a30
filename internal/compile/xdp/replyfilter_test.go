// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestReplyFilters ends flows. Their bits in both filters must be cleared, both by the daemon's sweep and by packets that find no flow for them. Bits
// of open flows must stay. Packets that begin no flow must set no bit. If many stale bits stayed, a host would refuse a flood slowly.
func TestReplyFilters(t *testing.T) {
	testutil.RequireRoot(t)
	const flows = 5
	over := func(i int) (own, other netip.AddrPort) {
		return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(5000+i)), netip.MustParseAddrPort("198.51.100.8:443")
	}
	answer := subject.FramesOf(t, "tcp 198.51.100.7:443 > 192.0.2.1:4000 A")[0].Frame
	for name, clean := range map[string]func(*testing.T, talker, image.ReplySecrets){
		"daemon": func(t *testing.T, p talker, _ image.ReplySecrets) {
			table, err := p.ReplyFlows()
			if err != nil {
				t.Fatal(err)
			}
			table.Sweep()
			table.Close()
		},
		"packets": func(t *testing.T, p talker, secret image.ReplySecrets) {
			r := rand.New(rand.NewPCG(3, 4))
			for i := range flows {
				own, other := over(i)
				for range 3000 { // one packet in 256 makes the program sweep
					at := subject.ReplyBucket(secret, own, other)
					own, other := subject.AnyInReplyBucket(r, secret, at)
					p.arrive(t, subject.FramesOf(t, fmt.Sprintf("tcp %s > %s A", other, own))[0].Frame)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := loadReplies(t)
			for i := range flows {
				own, other := over(i)
				p.leave(t, subject.FramesOf(t, fmt.Sprintf("tcp %s > %s S", own, other))[0].Frame)
			}
			p.age(t, 1000)
			p.leave(t, subject.FramesOf(t, "tcp 192.0.2.1:4000 > 198.51.100.7:443 S")[0].Frame)
			p.leave(t, subject.FramesOf(t, "tcp 192.0.2.1:4001 > 198.51.100.7:443 RA")[0].Frame) // a reset that belongs to no flow
			secret, used, set := p.filters(t)
			if used != flows+1 || set < used || set > 2*used {
				t.Errorf("the filters have %d and %d bits, of %d flows", used, set, flows+1)
			}
			clean(t, p, secret)
			if _, used, set := p.filters(t); used != 1 || set < 1 || set > 2 {
				t.Errorf("the filters have %d and %d bits, of one flow", used, set)
			}
			if !p.arrive(t, answer) {
				t.Error("an answer of the flow that is open is dropped")
			}
		})
	}
}

// filters returns the keys, and the number of set bits in each filter.
func (p talker) filters(t *testing.T) (secret image.ReplySecrets, used, set int) {
	t.Helper()
	memory, release, err := p.Memory(image.ReplyFilter)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	filter := memory[image.ReplyFilter]
	first, second := filter[image.ReplySecretsSize:][:image.ReplyUsedSize], filter[image.ReplySecretsSize+image.ReplyUsedSize:]
	return image.ReplySecretsOf(filter), ones(first), ones(second)
}

func ones(b []byte) (n int) {
	for _, b := range b {
		n += bits.OnesCount8(b)
	}
	return n
}
