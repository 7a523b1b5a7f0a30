package testutil

import "time"

// Eventually asks until something holds, and reports whether it did within that time; it is asked once more at the end. A question
// that takes long, as one that starts a process, is asked less often: no more than a quarter of the time goes into questions.
func Eventually(within time.Duration, holds func() bool) bool {
	for end := time.Now().Add(within); ; {
		began := time.Now()
		if holds() {
			return true
		}
		if began.After(end) {
			return false
		}
		time.Sleep(min(max(10*time.Millisecond, 3*time.Since(began)), time.Second))
	}
}
