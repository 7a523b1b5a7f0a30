package periodic

import (
	"sync"
	"time"
)

// Longest is how long an answer holds although nothing has changed, as far as a mark tells.
const Longest = 10 * time.Second

// Marks shares the looks at a mark, a text that stays the same while nothing changes. A nil *Marks has none.
type Marks struct {
	look func() string // "": it cannot be told whether anything has changed

	mu   sync.Mutex
	at   time.Time
	mark string
}

// NewMarks makes Marks of a function that looks. It is not called by two at a time.
func NewMarks(look func() string) *Marks { return &Marks{look: look} }

// markAge is how old a mark may be that tasks share.
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

// Task is work that is done again and again, and has to be done only when something has changed, or Longest after the last time.
// It is for one goroutine. A Task without Marks is done each time.
type Task struct {
	Marks *Marks

	mark string // when it was done, and left nothing to do
	at   time.Time
}

// Due does the work if there can be any. done reports whether it has left nothing to do.
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

// Forget has the work done the next time.
func (t *Task) Forget() { t.mark = "" }

func (t *Task) rests(mark string, now time.Time) bool {
	return mark != "" && mark == t.mark && now.Sub(t.at) < Longest
}
