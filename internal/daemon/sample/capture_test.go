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

// TestPacketsBeforeChange has packets come after the last look at the ring and before an apply, or an unload, that the look for another
// policy waits for: they are read before the capture ends.
func TestPacketsBeforeChange(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	in := control.Instance{Dir: datapath.DefaultDir}
	apply := func(text string) {
		t.Helper()
		p, err := policy.Parse("policy.yaml", []byte("devices: [fw0]\ndefault: pass\n"+text))
		if err == nil {
			_, err = in.Apply(t.Context(), p, control.ApplyOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { in.Unload(context.Background()) })
	var none *CaptureError
	for name, change := range map[string]func(){
		"apply": func() { apply("") },
		"unload": func() {
			if err := in.Unload(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		apply("rules: [{name: telnet, proto: tcp, port: 23, then: drop, sample: 1/1}]\n")
		c, err := Open(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		const sent = 3
		if err := testutil.Send("fw1", "tcp 198.51.100.7:1234 > 192.0.2.1:23 S", sent); err != nil {
			t.Fatal(err)
		}
		dropped := func() bool {
			s, err := in.Status(t.Context())
			return err == nil && s.Rules[0].Packets == sent
		}
		if !testutil.Eventually(time.Minute, dropped) {
			t.Fatal("the packets do not come")
		}
		change()
		c.found = c.look(t.Context())
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
