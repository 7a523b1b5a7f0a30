// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// besideFlood sends a flood as fast as possible. When the rule has counted a packet of the flood, it calls during, and continues the flood until
// during returns. The lines are UDP packets over IPv4 from random sources. Each round of these packets has other sources, because a source that the
// service answers for 8.6 s becomes a known client (docs/design/udp-floods.md). On a busy machine a flood takes longer than that.
func (s *scene) besideFlood(lines []string, rule string, during func()) {
	s.Helper()
	s.besideRounds(lines, 0, 10*time.Second, renewSources, rule, during)
}

// besidePacedFlood is like besideFlood, but pauses after each round of packets, and each round has the same packets. The parameter patience is the
// longest time until the rule must have counted a packet.
func (s *scene) besidePacedFlood(lines []string, pause, patience time.Duration, rule string, during func()) {
	s.Helper()
	s.besideRounds(lines, pause, patience, func([][]byte) {}, rule, during)
}

func (s *scene) besideRounds(lines []string, pause, patience time.Duration, after func(round [][]byte), rule string, during func()) {
	s.Helper()
	frames, stop := s.frames(lines...), make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.send(len(frames)+1, append(frames, frames[0]))
				after(frames)
				time.Sleep(pause)
			}
		}
	})
	defer flood.Wait()
	defer close(stop)
	if !testutil.Eventually(patience, func() bool { return s.counted(rule) > 0 }) {
		s.Errorf("the flood is not noticed: nothing is counted at %s", rule)
		return
	}
	during()
}

// renewSources changes the source of each frame to the next address. It reduces the identification and the source port by the same amount, so that
// both checksums stay correct (RFC 1624).
func renewSources(frames [][]byte) {
	const ip, udp = 14, 14 + 20 // where the headers begin
	for _, f := range frames {
		for at, add := range map[int]int{ip + 14: 1, ip + 4: 0xfffe, udp: 0xfffe} { // the address's low word, the identification and the port
			word := f[at : at+2]
			binary.BigEndian.PutUint16(word, uint16((int(binary.BigEndian.Uint16(word))+add)%0xffff))
		}
	}
}

// boundedFlood checks the number of packets that a service passed since the start of a flood although nothing proved their source. The service drops
// packets with which no client starts. It may pass a burst of 500 other packets, and then 50 a second. Its clients may have sent the same number.
func (s *scene) boundedFlood(service string, began time.Time) {
	s.Helper()
	most := 2*(2*500+50) + uint64(2*50*time.Since(began)/time.Second) + 1000
	if n := s.counted(service+":calm") + s.counted(service+":again") + s.counted(service); n > most {
		s.Errorf("%d packets passed that nothing proved, want %d at most", n, most)
	}
	if s.counted(service+":stray") == 0 {
		s.Error("no packet is counted as one with which nobody begins")
	}
}

// ageFlows makes all entries in the table of reply flows older, by the given number of units of 2^32 ns.
func (s *scene) ageFlows(units uint16) {
	s.Helper()
	s.replyTable(func(words, _ []byte) {
		for ; len(words) > 0; words = words[8:] {
			if binary.NativeEndian.Uint64(words) != 0 {
				binary.NativeEndian.PutUint16(words, binary.NativeEndian.Uint16(words)-units)
			}
		}
	})
}
