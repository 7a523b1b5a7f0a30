// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// openPages is the number of pages that request the top talkers at the same time.
const openPages = 30

// TestAPITop observes traffic through the API while packets arrive. It checks the rates of rules, the senders, and a suggested rule against the
// senders.
func TestAPITop(t *testing.T) {
	if !inside(t) {
		return
	}
	mustFloodwall(t, "apply", sampling(t))
	h := startDaemon(t)
	done, sent := make(chan struct{}), make(chan error)
	go func() {
		sent <- testutil.SendFor("fw1", []string{
			"udp 198.51.100.9:9 > 192.0.2.1:7", "udp 198.51.100.9:123 > 192.0.2.1:4000 len=468 payload=0xd700032a",
			"udp 198.51.100.10:123 > 192.0.2.1:4001 len=468 payload=0xd700032a", "udp 198.51.100.11:123 > 192.0.2.1:4002 len=468 payload=0xd700032a",
			"udp 198.51.100.12:123 > 192.0.2.1:4003 len=468 payload=0xd700032a", "udp 198.51.100.13:123 > 192.0.2.1:4004 len=468 payload=0xd700032a",
			"udp 198.51.100.14:123 > 192.0.2.1:4005 len=468 payload=0xd700032a", "udp 198.51.100.15:123 > 192.0.2.1:4006 len=468 payload=0xd700032a",
			"udp 198.51.100.16:123 > 192.0.2.1:4007 len=468 payload=0xd700032a", "udp 198.51.100.17:123 > 192.0.2.1:4008 len=468 payload=0xd700032a",
		}, func(int) bool {
			select {
			case <-done:
				return false
			case <-time.After(time.Millisecond):
				return true
			}
		})
	}()
	defer func() {
		close(done)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}()
	var top operate.Top
	if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/top?for=1s").body), &top); err != nil {
		t.Fatal(err)
	}
	dropped := 0.0
	for _, r := range top.Reasons {
		if r.Name == "port7" && r.Verdict == "drop" {
			dropped = r.Packets
		}
	}
	if dropped == 0 || top.Dropped.Packets < dropped || top.Samples == nil || top.Samples.Packets == 0 || top.Samples.Fields["sport"][0].Key != "udp/123" {
		t.Errorf("%+v", top)
	}
	var found operate.Suggestion
	if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/suggest?for=1s").body), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Rules) == 0 || !strings.Contains(found.Rules[0].Text, "length: 468") || found.Collateral != nil {
		t.Errorf("%+v", found)
	}
	seen := map[string]int{}
	answers := make(chan answer)
	for range openPages {
		go func() {
			a, err := get(readSocket, "/v1/top")
			if err != nil {
				a.body = err.Error()
			}
			answers <- a
		}()
	}
	for range openPages {
		a := <-answers
		seen[a.body]++
		if a.status != http.StatusOK {
			t.Errorf("%d pages ask at a time: %v", openPages, a)
		}
	}
	if len(seen) > 2 {
		t.Errorf("%d pages that ask at a time get %d looks at the traffic, want one, or two", openPages, len(seen))
	}
	h.must(http.StatusBadRequest, readSocket, "/v1/top?for=31s")
	h.must(http.StatusBadRequest, readSocket, "/v1/suggest?for=x")
}
