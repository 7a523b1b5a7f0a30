// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
)

// Limits of the baseline.
const (
	mostLearned = 5000             // samples, about 200 bytes each
	learnDelay  = 30 * time.Second // a sample counts as legitimate only if no attack begins for this time after it
	renewal     = 20 * mostLearned // the draw counts at most this many samples as seen, so that later samples gradually replace older ones
	mostPending = 20 * mostLearned // the most samples in pending
	saveEvery   = 10 * time.Minute // least time between two writes of the baseline
)

// baseline is a random selection (a reservoir sample) of the packets that passed in quiet times.
type baseline struct {
	samples []sample.Sample
	seen    int
	pending []sample.Sample // samples of the last learnDelay, which are not in the draw yet
}

// add adds a sample of a quiet time to the pending samples.
func (b *baseline) add(s sample.Sample) {
	if len(b.pending) < mostPending {
		b.pending = append(b.pending, s)
	}
}

// learn moves the pending samples that are older than learnDelay into the reservoir. No attack has started since they arrived. It returns their
// number.
func (b *baseline) learn(now time.Time) (n int) {
	for n < len(b.pending) && now.Sub(b.pending[n].Time) > learnDelay {
		b.take(b.pending[n])
		n++
	}
	b.pending = append(b.pending[:0], b.pending[n:]...)
	return n
}

// take adds a sample to the reservoir. The number of seen samples is capped, so that new samples continue to replace old ones.
func (b *baseline) take(s sample.Sample) {
	b.seen = min(b.seen+1, renewal)
	b.samples = draw(b.samples, s, b.seen, mostLearned)
}

// forget drops the pending samples, because an attack has started.
func (b *baseline) forget() { b.pending = b.pending[:0] }

// checkBaseline warns early of a baseline file that cannot be read, before rules against an attack need the file.
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

// How often the baseline file is read at most, and how many packets are drawn from the file.
const (
	readEvery  = time.Minute
	mostOfFile = 10_000 // number of packets from the file that rules are tested against
)

// good returns legitimate samples: those of the policy's baseline file if there is one, otherwise the learned samples.
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
	return samplesOf(w.learned.samples), nil
}
