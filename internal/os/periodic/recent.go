// SPDX-License-Identifier: Apache-2.0

// This file shares an answer among callers that ask at nearly the same time, and detects whether the answer may have changed since then.

package periodic

import (
	"sync"
	"time"
)

// Age is the largest age of a shared answer. Parts of the daemon read the policy's settings once a second.
const Age = 900 * time.Millisecond

// Answer is the last answer to a question. Its zero value has no answer. A nil *Answer never keeps an answer.
type Answer[T any] struct {
	Marks *Marks // the answer is valid while the mark is unchanged; nil: there is no mark

	mu    sync.Mutex
	at    time.Time // the time of the question, or the last time at which the mark was unchanged
	value T
	since Task
}

// Of returns an answer that is at most Age old. If there is none, Of calls ask. Errors are not kept. All callers share the data to which the answer
// points.
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
