// This file shares an answer among those who ask the same at nearly the same time, and tells whether anything has changed since.

package periodic

import (
	"sync"
	"time"
)

// Age is how old an answer may be: parts of the daemon look what the policy wants once a second.
const Age = 900 * time.Millisecond

// Answer is the last answer to a question. Its zero value has none. A nil *Answer keeps none.
type Answer[T any] struct {
	Marks *Marks // while the mark is the same, the answer is; nil: it is not known

	mu    sync.Mutex
	at    time.Time // of the question, or of the last time when the mark was the same
	value T
	since Task
}

// Of returns an answer that is at most Age old, and asks if there is none. An error is no answer, and is not kept.
// What the answer points to belongs to all who ask.
func (a *Answer[T]) Of(ask func() (T, error)) (T, error) {
	if a == nil {
		return ask()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && time.Since(a.at) < Age {
		return a.value, nil
	}
	var value T
	var err error
	at, asked := time.Now(), false
	a.since.Marks = a.Marks
	a.since.Due(func() bool {
		asked = true
		value, err = ask()
		return err == nil
	})
	switch {
	case !asked:
		a.at = at
		return a.value, nil
	case err == nil:
		a.at, a.value = at, value
	}
	return value, err
}
