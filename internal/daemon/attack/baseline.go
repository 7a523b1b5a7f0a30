package attack

import (
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// The bounds of what is learned.
const (
	mostLearned = 5000             // samples, about 200 bytes each
	learnDelay  = 30 * time.Second // for which no attack may begin before a sample counts as legitimate
	renewal     = 20 * mostLearned // samples of which each has the same chance to stay; later ones replace those before bit by bit
	mostPending = 20 * mostLearned // that wait for it
	saveEvery   = 10 * time.Minute // at least between two times that the baseline is written
)

// baseline is a random draw of what came in quiet times and passed.
type baseline struct {
	samples []sample.Sample
	seen    int
	pending []sample.Sample // of the last learnDelay
}

// add notes a sample of a quiet time.
func (b *baseline) add(s sample.Sample) {
	if len(b.pending) < mostPending {
		b.pending = append(b.pending, s)
	}
}

// learn takes over what is older than learnDelay: no attack has started since.
func (b *baseline) learn(now time.Time) {
	n := 0
	for n < len(b.pending) && now.Sub(b.pending[n].Time) > learnDelay {
		b.take(b.pending[n])
		n++
	}
	b.pending = append(b.pending[:0], b.pending[n:]...)
}

// take draws with a bound on the number of samples that were seen, so that it goes on to forget.
func (b *baseline) take(s sample.Sample) {
	b.seen = min(b.seen+1, renewal)
	b.samples = draw(b.samples, s, b.seen, mostLearned)
}

// forget drops what waits: an attack has started.
func (b *baseline) forget() { b.pending = b.pending[:0] }
