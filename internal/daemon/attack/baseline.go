package attack

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
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

// checkBaseline warns of a baseline that cannot be read before it is asked for, when an attack goes on.
func (w *Watcher) checkBaseline(file string) {
	if file == "" {
		return
	}
	if _, _, packets, err := suggest.ReadFile(file, 1, 0); err != nil {
		w.fail(fmt.Errorf("detect: the baseline: %w", err))
	} else if packets == 0 {
		w.fail(fmt.Errorf("detect: the baseline: %s has no IP packet", file))
	}
}

// A file with the baseline is read at most so often, and drawn from.
const (
	readEvery  = time.Minute
	mostOfFile = 10_000 // packets of it that rules are held against
)

// good are legitimate samples: those of the file that the policy names, or those that were learned.
func (w *Watcher) good() ([]suggest.Sample, error) {
	if file := w.settings.Baseline; file != "" {
		if w.filed == nil || w.at.Sub(w.fileRead) >= readEvery {
			samples, _, _, err := suggest.ReadFile(file, mostOfFile, 0)
			if err != nil {
				return nil, err
			}
			w.filed, w.fileRead = samples, w.at
		}
		return w.filed, nil
	}
	if len(w.learned.samples) < leastBaseline {
		return nil, nil
	}
	list := make([]suggest.Sample, len(w.learned.samples))
	for i, s := range w.learned.samples {
		list[i] = suggest.NewSample(s.Frame, s.Length)
	}
	return list, nil
}
