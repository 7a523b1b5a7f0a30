package traffic

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// besideFlood has packets come from the attacker, again and again, for as long as during runs, which begins when one is counted at a rule.
func (s *scene) besideFlood(lines []string, rule string, during func()) {
	s.Helper()
	s.besidePacedFlood(lines, 0, 10*time.Second, rule, during)
}

// besidePacedFlood is besideFlood with a pause each time that all packets have come, and as much patience until one is counted.
func (s *scene) besidePacedFlood(lines []string, pause, patience time.Duration, rule string, during func()) {
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

// boundedFlood checks what has passed since a flood began at a service that drops what nobody begins with: a start of 500 packets at once, and 50 a second after
// that, beside as many that its clients may have sent.
func (s *scene) boundedFlood(service string, began time.Time) {
	s.Helper()
	most := 2*(2*500+50) + uint64(2*50*time.Since(began)/time.Second) + 1000
	if n := s.counted(service+":calm") + s.counted(service); n > most {
		s.Errorf("%d packets passed that nothing proved, want %d at most", n, most)
	}
	if s.counted(service+":stray") == 0 {
		s.Error("no packet is counted as one with which nobody begins")
	}
}

// ageFlows has all flows that the program knows be older, by units of 2^32 ns.
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
