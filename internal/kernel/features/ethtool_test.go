// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestVeth compares the features of a veth with those that the tool ethtool shows, before and after changes.
func TestVeth(t *testing.T) {
	testutil.RequireTool(t, "ethtool")
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Driver("fw0"); got != "veth" || err != nil {
		t.Errorf("driver %q, %v", got, err)
	}
	for _, state := range []string{"on", "off"} {
		ethtool(t, "-K", "fw0", "gro", state)
		f, err := c.Features("fw0")
		if got := f["rx-gro"]; err != nil || got.On != (state == "on") || got.Fixed {
			t.Errorf("rx-gro %+v, %v, after gro %s", got, err, state)
		}
		if f["rx-lro"].On || !f["rx-lro"].Fixed {
			t.Errorf("rx-lro %+v, want off and fixed", f["rx-lro"])
		}
	}
	channels, err := c.Channels("fw0")
	want := regexp.MustCompile(`RX:\s+(\d+)`).FindAllStringSubmatch(ethtool(t, "-l", "fw0"), 2)
	if err != nil || want[0][1] != fmt.Sprint(channels.MaxRX) || want[1][1] != fmt.Sprint(channels.RX) {
		t.Errorf("channels %+v, %v, ethtool says %q", channels, err, want)
	}
	stats, err := c.Stats("fw0")
	if _, has := stats["rx_queue_0_drops"]; err != nil || !has {
		t.Errorf("statistics %v, %v: no rx_queue_0_drops", stats, err)
	}
	if _, err := c.Rings("fw0"); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("rings of a veth: %v, want not supported", err)
	}
	if _, err := c.Driver("nowhere"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("driver of no device: %v", err)
	}
	if _, err := c.Stats("lo"); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("statistics of lo: %v, want not supported", err)
	}
}

func ethtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ethtool", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ethtool %v: %v: %s", args, err, out)
	}
	return string(out)
}
