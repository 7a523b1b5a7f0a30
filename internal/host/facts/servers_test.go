// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ranges"
)

// TestServersOf checks which servers would be probed, with an internal function. Each server must be in the list before any server is there with a
// second port.
func TestServersOf(t *testing.T) {
	ports := []ranges.Range{{First: 80, Last: 81}, {First: 443, Last: 443}}
	var named []netip.Addr
	for last := range byte(5) {
		named = append(named, netip.AddrFrom4([4]byte{10, 0, 0, last}))
	}
	got, err := ServersOf(ports, named)
	const want = "[10.0.0.0:80 10.0.0.1:80 10.0.0.2:80 10.0.0.3:80 10.0.0.4:80 10.0.0.0:443 10.0.0.1:443 10.0.0.2:443]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("asked are %v (%v), want %s", got, err, want)
	}
}
