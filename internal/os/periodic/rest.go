// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"sync"
	"time"
)

// Longest is the time for which an answer stays valid while the mark is unchanged.
const Longest = 10 * time.Second

// Marks caches a mark. A mark is a text that stays the same while nothing changes. A nil *Marks has no mark.
type Marks struct {
	look func() string // reads the mark; it returns "" if it is unknown whether anything has changed

	mu   sync.Mutex
	at   time.Time
	mark string
}

// NewMarks returns Marks for the function look, which reads the mark. Calls of look do not overlap.
func NewMarks(look func() string) *Marks { return &Marks{look: look} }

// markAge is the largest age of a mark that tasks share.
const markAge = Age / 2

func (m *Marks) now() string {
	if m == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || time.Since(m.at) >= markAge {
		m.at = time.Now()
		m.mark = m.look()
	}
	return m.mark
}

// Task is periodic work that is necessary only if the mark has changed, or if Longest has passed since the work was last done. A Task must be used by
// one goroutine only. A Task without Marks is done each time.
type Task struct {
	Marks *Marks

	mark string // the mark when the work was last completed
	at   time.Time
}

// Due calls do if the work may be necessary. done tells whether do has completed the work.
func (t *Task) Due(do func() (done bool)) {
	mark, now := t.Marks.now(), time.Now()
	if t.rests(mark, now) {
		return
	}
	t.Forget()
	if do() {
		t.mark, t.at = mark, now
	}
}

// Forget makes the next call of Due do the work in any case.
func (t *Task) Forget() { t.mark = "" }

func (t *Task) rests(mark string, now time.Time) bool {
	return mark != "" && mark == t.mark && now.Sub(t.at) < Longest
}
