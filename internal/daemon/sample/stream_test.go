// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestStream writes samples and reads them back. A cut stream, and text that is no stream, must be errors.
func TestStream(t *testing.T) {
	tap := NewTap(control.Instance{})
	tap.oneIn.Store(10)
	f := tap.Follow()
	want := Sample{Device: "eth0", Length: 1500, Frame: []byte{1, 2, 3}, Verdict: "drop", Reason: `a "rule"`, Time: time.Unix(1, 0).UTC()}
	f.samples <- want
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	written := make(chan error)
	go func() { written <- f.Write(ctx, &out) }()
	for len(f.samples) > 0 {
		time.Sleep(time.Millisecond)
	}
	f.missed.Add(3)
	cancel()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	s, err := NewStream(io.NopCloser(strings.NewReader(out.String())))
	if err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	got, err := s.Read(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := s.Read(t.Context()); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if lost, err := s.Lost(); lost != 3 || err != nil || s.OneIn() != 10 {
		t.Errorf("lost %d, %v, want 3; one in %d, want 10", lost, err, s.OneIn())
	}
	for _, bad := range []string{"", "<html>", "{}\n", "[]"} {
		if _, err := NewStream(io.NopCloser(strings.NewReader(bad))); err == nil {
			t.Errorf("%q is a stream", bad)
		}
	}
	for _, bad := range []string{"", "{\"device\": \"et", "7"} {
		s, err := NewStream(io.NopCloser(strings.NewReader("{\"one_in\": 2}\n" + bad)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context()); err == nil || err == io.EOF {
			t.Errorf("after %q: %v", bad, err)
		}
	}
}
