// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// TestDeviceChoices lets another tool demand the place of ours at tc again and again, and its XDP program restart. Ours moves a few times only, and gets
// native mode at the start, and when the other program stays away.
func TestDeviceChoices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &deviceRepairer{beside: map[string]time.Time{}, moves: map[string]int{}}
		for i := range 10 {
			if got, want := r.reorder(datapath.Misplaced{Device: "eth0", Others: []string{"plugin"}}), i < mostReorders; got != want {
				t.Errorf("time %d: moves %t, want %t", i, got, want)
			}
		}
		if !r.reorder(datapath.Misplaced{Device: "eth0", Others: []string{"another"}}) {
			t.Error("does not move before another program")
		}
		if !r.native("eth0") {
			t.Error("native mode is not tried at the start")
		}
		r.started = true
		if r.native("eth0") {
			t.Error("native mode is tried again and again")
		}
		r.beside["eth0"] = time.Now()
		time.Sleep(restarting - time.Second)
		if r.native("eth0") {
			t.Error("native mode is tried while the other tool may restart")
		}
		time.Sleep(2 * time.Second)
		if !r.native("eth0") || r.native("eth0") {
			t.Error("native mode is not tried once when the other program stays away")
		}
	})
}
