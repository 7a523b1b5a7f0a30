// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestSnoopedGroup makes a host join a multicast group. Like a switch, the bridge before the host does IGMP snooping and sends queries. It removes
// members that have not answered for three seconds. The group's traffic must continue.
func TestSnoopedGroup(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	outside := testutil.NewElsewhere(t)
	outside.Take(t, "fw1")
	outside.Do(func() {
		h.ip("link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_interval 100 mcast_query_response_interval 50"+
			" mcast_membership_interval 300 mcast_startup_query_interval 100 mcast_last_member_interval 50",
			"addr add 192.0.2.2/24 dev br0", "link set br0 up", "link set fw1 master br0", "link set fw1 up")
	})
	fw0, err := net.InterfaceByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	group := &net.UDPAddr{IP: net.IPv4(239, 1, 2, 3), Port: 5000}
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		if _, err := h.try("default: drop\nchecks: strict\nservices: [{name: stream, port: udp/5000}]\n", control.ApplyOptions{Target: target}); err != nil {
			t.Fatal(err)
		}
		listens, err := net.ListenMulticastUDP("udp4", fw0, group)
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var stream atomic.Uint64
		outside.Do(func() { streamTo(t, group, &stream, stop) })
		// The bridge forgets a membership that is not reported again after 3 s. What is sent 6 s after the first packet must still arrive.
		came := testutil.Arrives(t, listens, slow)
		for end := time.Now().Add(6 * time.Second); came && time.Now().Before(end); {
			came = testutil.Arrives(t, listens, slow)
		}
		late := stream.Load()
		for came {
			text, _, ok := testutil.Receive(t, listens, slow)
			if came = ok; ok && binary.BigEndian.Uint64(text) > late {
				break
			}
		}
		if !came {
			t.Errorf("%s: the group's traffic has ended", target)
		}
		close(stop)
		listens.Close()
	}
}

// streamTo sends to a group from the calling thread's network namespace, ten times a second. It sends the numbers of the packets, and stores the last.
func streamTo(t *testing.T, group *net.UDPAddr, last *atomic.Uint64, stop chan struct{}) {
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2)}, group)
	if err != nil {
		t.Error(err)
		return
	}
	go func() {
		defer c.Close()
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				c.Write(binary.BigEndian.AppendUint64(nil, last.Add(1)))
			}
		}
	}()
}
