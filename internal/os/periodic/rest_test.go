// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTask calls Due every second. The work must be done when the mark changes, when there is no mark, and when work was left to do. In any case it
// must be done after Longest.
func TestTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark, looks, dones, calm := "a", 0, 0, true
		marks := NewMarks(func() string { looks++; return mark })
		task, other := Task{Marks: marks}, Task{Marks: marks}
		seconds := func(what string, n, want int) {
			t.Helper()
			before := dones
			for range n {
				task.Due(func() bool { dones++; return calm })
				other.Due(func() bool { return true })
				time.Sleep(time.Second)
			}
			if dones-before != want {
				t.Errorf("%s: it is done %d times in %d s, want %d", what, dones-before, n, want)
			}
		}
		seconds("at rest", 10, 1)
		seconds("after the longest time", 10, 1)
		if looks != 20 {
			t.Errorf("two tasks looked %d times in 20 s", looks)
		}
		mark = "b"
		seconds("after a change", 3, 1)
		mark = ""
		seconds("without a mark", 3, 3)
		mark, calm = "b", false
		seconds("with something left to do", 3, 3)
		calm = true
		seconds("then", 3, 1)
		task.Forget()
		seconds("when it is told of a change", 1, 1)
		if (&Task{}).Due(func() bool { dones++; return true }); dones == 0 {
			t.Error("a task without marks is not done")
		}
	})
}

// TestAnswerAtRest calls Of every second. While the mark is unchanged, the question must be asked again only after Longest.
func TestAnswerAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark, asked := "a", 0
		var failed error
		a := Answer[int]{Marks: NewMarks(func() string { return mark })}
		seconds := func(what string, n, want int) {
			t.Helper()
			before := asked
			for range n {
				if got, err := a.Of(func() (int, error) { asked++; return asked, failed }); err != failed || failed == nil && got != asked {
					t.Errorf("%s: answer %d, %v after %d questions", what, got, err, asked)
				}
				time.Sleep(time.Second)
			}
			if asked-before != want {
				t.Errorf("%s: %d questions in %d s, want %d", what, asked-before, n, want)
			}
		}
		seconds("at rest", 20, 2)
		mark = "b"
		seconds("after a change", 2, 1)
		failed = errors.New("no")
		mark = "c"
		seconds("with an error", 2, 2)
	})
}
