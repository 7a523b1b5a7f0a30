// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// Two policies that both drop UDP to port 9999, with different rules. They have nothing else in common.
const (
	policyA = `devices: [internet]
default: pass
rules:
  - {name: flood, proto: udp, port: 9999, then: drop}
`
	policyB = `devices: [internet]
default: drop
sets:
  web: [192.0.2.0/24]
rules:
  - {name: web, from: $web, then: pass}
`
)

// TestSwapUnderFlood replaces one policy by another again and again. Packets that both policies drop must never reach the stack.
func TestSwapUnderFlood(t *testing.T) {
	testutil.RequireRoot(t)
	swaps := testutil.Scaled(20, 1000)
	in := control.Instance{Dir: ownDir(t)}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) error {
		server, flood, err := floodedServer(l)
		if err != nil {
			return err
		}
		apply := func(text string) error {
			return server.Do(func() error {
				p, err := policy.Parse("policy.yaml", []byte(text))
				if err != nil {
					return err
				}
				_, err = in.Apply(ctx, p, control.ApplyOptions{})
				return err
			})
		}
		if err := apply(policyA); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- flood.Run(ctx) }()
		time.Sleep(200 * time.Millisecond)
		before := received(t, server)
		for i := range swaps {
			if err := apply([]string{policyB, policyA}[i%2]); err != nil {
				return err
			}
		}
		after := received(t, server)
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		t.Logf("%d swaps under %d packets", swaps, flood.Sent())
		if flood.Sent() < uint64(swaps) {
			t.Errorf("only %d packets were sent: the test shows nothing", flood.Sent())
		}
		if after != before {
			t.Errorf("%d packets got through", after-before)
		}
		return server.Do(func() error { return in.Unload(context.Background()) })
	})
	if err != nil {
		t.Fatal(err)
	}
}

func floodedServer(l *lab.Lab) (*lab.Host, *lab.Source, error) {
	internet, err := l.Host("internet")
	if err != nil {
		return nil, nil, err
	}
	server, err := l.Host("server")
	if err != nil {
		return nil, nil, err
	}
	out, _, err := l.Connect(internet, server, lab.LinkOptions{
		A: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.1/24")},
		B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.2/24")},
	})
	if err != nil {
		return nil, nil, err
	}
	source, err := l.NewSource(out, lab.SourceOptions{
		Rate: 50_000, // leaves time on both CPUs for the applies
		Flows: []lab.Flow{{
			From: lab.In(netip.MustParsePrefix("198.51.100.0/24")), To: lab.MustAddrs("10.0.0.2"),
			SPort: lab.AnyPort, DPort: lab.Port(9999),
		}},
	})
	return server, source, err
}

// received returns the number of IPv4 packets that the host's stack has received.
func received(t *testing.T, h *lab.Host) uint64 {
	t.Helper()
	var text []byte
	err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, name := range names {
		if name == "InReceives" {
			n, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no counter InReceives")
	return 0
}
