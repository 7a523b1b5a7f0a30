// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestSenderNotes checks that apply has one note on the packets that the checks of senders drop on this host, and none if they drop no packets.
func TestSenderNotes(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("addr flush dev fw0", "addr add 10.5.0.1/24 dev fw0", "route add default via 10.5.0.9")
	for text, want := range map[string][]string{
		"default: drop\nchecks: {bogon-source: on}":                            {"drops what begins there: 10.5.0.0/24 ("},
		"default: drop\nreplies: drop\nchecks: {bogon-source: on}":             {"comes from there, answers too"},
		"default: drop\nchecks: strict":                                        nil,
		"default: drop\nchecks: {bogon-source: observe}":                       nil,
		"default: pass\nchecks: strict":                                        {"`replies: pass` lets them pass"},
		"default: pass\nreplies: pass\nchecks: strict":                         nil,
		"default: drop\nchecks: strict\nservices: [{name: m, port: udp/5353}]": {`service "m": peers of mDNS send from port 5353`},
		"default: drop\nservices: [{name: m, port: udp/5353}]":                 nil,
	} {
		applied, err := h.try(text, control.ApplyOptions{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var said []string
		for _, n := range applied.Notes {
			if strings.Contains(n, "bogon-source") || strings.Contains(n, "reflector-source") {
				said = append(said, n)
			}
		}
		if len(said) != len(want) || len(want) == 1 && !strings.Contains(said[0], want[0]) {
			t.Errorf("%s: the notes are %q, should have %q", text, said, fmt.Sprint(want))
		}
	}
}
