package traffic

import (
	"sync"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// besideFlood has packets come from the attacker, again and again, for as long as during runs, which begins when one is counted at a rule.
func (s *scene) besideFlood(lines []string, rule string, during func()) {
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
			}
		}
	})
	defer flood.Wait()
	defer close(stop)
	if !testutil.Eventually(10*time.Second, func() bool { return s.counted(rule) > 0 }) {
		s.Errorf("the flood is not noticed: nothing is counted at %s", rule)
		return
	}
	during()
}
