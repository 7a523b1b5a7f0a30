// Package recent shares an answer among those who ask the same at nearly the same time.
package recent

import (
	"sync"
	"time"
)

// Age is how old an answer may be: parts of the daemon look what the policy wants once a second.
const Age = 900 * time.Millisecond

// Answer is the last answer to a question. Its zero value has none. A nil *Answer keeps none.
type Answer[T any] struct {
	mu    sync.Mutex
	at    time.Time
	value T
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
	at := time.Now()
	value, err := ask()
	if err == nil {
		a.at, a.value = at, value
	}
	return value, err
}
