// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestPacketsBeforeChange sends packets after the last read of the ring and before an apply or unload. The check for another policy waits for the
// apply or unload. The packets must be read before the capture ends.
func TestPacketsBeforeChange(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	h := newSampling(t)
	var none *CaptureError
	for name, change := range map[string]func(){
		"apply":  func() { h.apply("") },
		"unload": h.unload,
	} {
		h.apply(telnet)
		c, err := Open(t.Context(), h.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		const sent = 3
		h.send(sent)
		change()
		c.changed = c.look(t.Context())
		read := 0
		for ; err == nil; read++ {
			_, err = c.Read(t.Context())
		}
		if read--; read != sent || !errors.As(err, &none) && !errors.Is(err, datapath.ErrNotLoaded) {
			t.Errorf("%s: %d packets, then %v; want %d", name, read, err, sent)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManyChanges lets a capture detect an apply while samples of the policy before are left. Before these are read, the policy is replaced until
// nothing is left of the one that was detected, and a new policy has its number. The capture must follow the policy that runs now.
func TestManyChanges(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	h := newSampling(t)
	h.apply(telnet)
	c, err := Open(t.Context(), h.in, []string{"telnet"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const sent = 3
	h.send(sent)
	h.apply("rules: [{name: dns, proto: udp, port: 53, then: drop}, {name: telnet, proto: tcp, port: 23, then: drop, sample: 1/1}]\n")
	time.Sleep(lookForChange) // now Read detects the apply
	for i := range sent {
		if _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			h.unload()
			h.apply(telnet)
		}
	}
	began := time.Now()
	done := make(chan struct{})
	sending := make(chan error, 1)
	go func() {
		sending <- testutil.SendFor("fw1", []string{telnetPacket}, func(int) bool {
			select {
			case <-done:
				return false
			case <-time.After(10 * time.Millisecond):
				return true
			}
		})
	}()
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := c.Read(limited)
	close(done)
	if err := <-sending; err != nil {
		t.Fatal(err)
	}
	if err != nil || s.Reason != "telnet" || s.Time.Before(began) {
		t.Errorf("after many changes: %+v, %v", s, err)
	}
}

const (
	telnet       = "rules: [{name: telnet, proto: tcp, port: 23, then: drop, sample: 1/1}]\n"
	telnetPacket = "tcp 198.51.100.7:1234 > 192.0.2.1:23 S"
)

// sampling is an instance whose policy may take samples of packets on fw0.
type sampling struct {
	t  *testing.T
	in control.Instance
}

func newSampling(t *testing.T) *sampling {
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	h := &sampling{t, control.Instance{Dir: datapath.DefaultDir}}
	t.Cleanup(func() { h.in.Unload(context.Background()) })
	return h
}

// apply applies a policy with the rules in text.
func (h *sampling) apply(text string) {
	h.t.Helper()
	p, err := policy.Parse("policy.yaml", []byte("devices: [fw0]\ndefault: pass\n"+text))
	if err == nil {
		_, err = h.in.Apply(h.t.Context(), p, control.ApplyOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *sampling) unload() {
	h.t.Helper()
	if err := h.in.Unload(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// send sends packets to the first rule, and waits until the rule has counted them.
func (h *sampling) send(packets int) {
	h.t.Helper()
	if err := testutil.Send("fw1", telnetPacket, packets); err != nil {
		h.t.Fatal(err)
	}
	counted := func() bool {
		s, err := h.in.Status(h.t.Context())
		return err == nil && s.Rules[0].Packets == uint64(packets)
	}
	if !testutil.Eventually(time.Minute, counted) {
		h.t.Fatal("the packets do not come")
	}
}
