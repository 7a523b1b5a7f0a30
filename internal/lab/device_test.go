// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"github.com/cilium/ebpf/link"
)

// TestDetach detaches a program whose link is also held by another descriptor, for example of a child between fork and exec.
func TestDetach(t *testing.T) {
	p := newPair(t)
	s, err := p.lab.NewSink(p.a, DropAll)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		attached, err := p.lab.Attach(p.b, s.Program)
		if err != nil {
			t.Fatalf("attach: %v", err)
		}
		info, err := attached.Info()
		if err != nil {
			t.Fatal(err)
		}
		child, err := link.NewFromID(info.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer child.Close()
		if err := attached.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
