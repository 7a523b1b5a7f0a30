// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestGone removes the device and creates it again. Gone must report this, and the state of the policy must stay.
func TestGone(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	if g, err := s.Latest(); g != nil || err != nil {
		t.Errorf("latest of none: %v, %v", g, err)
	}
	install(t, s, "fw0")
	for _, gone := range []string{"", "fw0"} {
		if got, err := s.Gone(); strings.Join(got, " ") != gone || err != nil {
			t.Errorf("gone: %v, %v, want %q", got, err, gone)
		}
		g, err := s.Latest()
		if err != nil || g == nil || string(g.Manifest) != "manifest" {
			t.Fatalf("latest: %+v, %v", g, err)
		}
		g.Close()
		counters, err := s.Counters()
		if err != nil || counters == nil {
			t.Fatalf("counters: %v, %v", counters, err)
		}
		counters.Close()
		if gone == "" {
			ip(t, "link del fw0")
		}
	}
	testutil.Veth(t, "fw0", "fw1")
	if _, err := s.Install(loadInside(t, always(70, 1)), nil, on("fw0", "none"), time.Time{}); err == nil {
		t.Error("installed on a device that does not exist")
	}
	if got, err := s.Gone(); len(got) != 1 || err != nil {
		t.Errorf("after a failed install, gone: %v, %v", got, err)
	}
	install(t, s, "fw0")
	if got, err := s.Gone(); got != nil || err != nil {
		t.Errorf("after an install, gone: %v, %v", got, err)
	}
}

// TestGoneMeanwhile asks for the devices of a policy again and again while their device is removed. No answer may be an error: a device can go between
// two questions to the kernel.
func TestGoneMeanwhile(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	byEachHook(t, func(t *testing.T) {
		s := locked(t)
		testutil.Veth(t, "fw0", "fw1")
		for range 12 {
			if _, err := s.Install(loadInside(t, always(70, 1)), nil, []datapath.Attachment{{Device: "fw0", Mode: datapath.TC}}, time.Time{}); err != nil {
				t.Fatal(err)
			}
			remove := exec.Command("ip", "link", "del", "fw0")
			if err := remove.Start(); err != nil {
				t.Fatal(err)
			}
			gone := false
			for end := time.Now().Add(time.Minute); !gone && time.Now().Before(end); { // without a pause, so that a question meets the removal
				names, err := s.Gone()
				if err != nil {
					t.Fatal(err)
				}
				gone = names != nil
			}
			if err := remove.Wait(); err != nil || !gone {
				t.Fatalf("gone: %v, error %v", gone, err)
			}
			testutil.Veth(t, "fw0", "fw1")
		}
		unloadAll(t, s)
	})
}
