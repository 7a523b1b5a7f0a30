// SPDX-License-Identifier: Apache-2.0

package testutil

import "time"

// Eventually calls holds repeatedly, and reports whether holds returned true within a time. When the time is over, it calls holds once more. If holds
// is slow, for example because it starts a process, it is called less often: the calls take at most a quarter of the time.
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
