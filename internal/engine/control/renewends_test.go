// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// TestRenewalKnowsTheHost adds a temporary rule to a generation of an earlier version, whose program answered packets without facts about this host.
// The program that replaces it must have these facts at once, and must leave no query without an answer.
func TestRenewalKnowsTheHost(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.settled()
	h.apply("default: pass\nservices:\n  - {name: dns, port: [udp/53, tcp/53], guard: dns, track: false}\n")
	pin, before := h.ends()
	if bytes.Equal(before, make([]byte, len(before))) {
		t.Fatal("the program knows nothing of this host after apply")
	}
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	host := operate.Host{Instance: h.Instance}
	if _, err := host.AddTemporary(t.Context(), operate.TemporaryOrder{Rule: "{name: drops, proto: udp, port: 1000, then: drop}", For: "1h"}); err != nil {
		t.Fatal(err)
	}
	if _, after := h.ends(); !bytes.Equal(before, after) {
		t.Errorf("the program in its place knows something else of this host:\n%s", cmp.Diff(before, after))
	}
}

// ends returns the pin of the map with facts about this host (image.HostEnds), and the map's content.
func (h *host) ends() (pin string, content []byte) {
	h.Helper()
	pins, err := filepath.Glob(h.Dir + "/generation-*/%2edata%2eends")
	if err != nil || len(pins) != 1 {
		h.Fatalf("maps of what the program knows of this host: %v, %v", pins, err)
	}
	m, err := ebpf.LoadPinnedMap(pins[0], nil)
	if err != nil {
		h.Fatal(err)
	}
	defer m.Close()
	if content, err = m.LookupBytes(uint32(0)); err != nil {
		h.Fatal(err)
	}
	return pins[0], content
}
