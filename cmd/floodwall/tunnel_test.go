// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// tunnelAt opens a tunnel that this process owns. The outer packets arrive at a UDP port. The returned function closes the tunnel.
func tunnelAt(t *testing.T, device string, port int) (end func()) {
	t.Helper()
	tunnel, err := testutil.Tun(device)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	return func() { socket.Close(); tunnel.Close() }
}

// TestSessionInTunnel applies policies in a session through a tunnel. The tunnel's outer packets arrive on a device of the policy. If a policy allows
// no new flows to the tunnel's port, apply must refuse it. A trial would not show the problem: for some minutes, the outer packets still count as
// replies to this host's own packets. If this host may have started the tunnel, apply must only print a note. A policy with the service in the hint
// must be applied.
func TestSessionInTunnel(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for _, tunnel := range []struct {
		port    int
		refused bool
		targets []string // all targets are tested in the same way
	}{{7000, true, []string{"nftables", "xdp"}}, {51820, true, []string{"xdp"}}, {40123, false, []string{"xdp"}}} {
		end := openTunnel(t, tunnel.port)
		for _, target := range tunnel.targets {
			writeFile(t, file, tunnelClosed)
			out, err := floodwall("apply", file, "--target", target, "--confirm", "1m")
			service := fmt.Sprintf("- {name: tunnel0, port: udp/%d}", tunnel.port)
			if !strings.Contains(out, "comes through the tunnel tunnel0") || !strings.Contains(out, "`"+service+"`") {
				t.Errorf("udp/%d, %s: apply does not tell how to keep the tunnel:\n%s", tunnel.port, target, out)
			}
			if (err != nil) != tunnel.refused {
				t.Errorf("udp/%d, %s: %v\n%s", tunnel.port, target, err, out)
			}
			writeFile(t, file, tunnelClosed+"  "+service+"\n")
			if out, err := floodwall("apply", file, "--target", target); err != nil || strings.Contains(out, "through the tunnel") {
				t.Errorf("udp/%d, %s, with the service of the hint: %v\n%s", tunnel.port, target, err, out)
			}
			mustFloodwall(t, "unload")
		}
		end()
	}
	defer openTunnel(t, 7000)()
	writeFile(t, file, tunnelClosed)
	mustFloodwall(t, "apply", file, "--force")
}

// tunnelClosed is a policy that allows no new flow to the port of the tunnel.
const tunnelClosed = "devices: [fw0]\ndefault: drop\nchecks: off\nservices:\n  - {name: web, port: tcp/443}\n"

// openTunnel opens a tunnel that carries the session of this process. The returned function closes it.
func openTunnel(t *testing.T, port int) (end func()) {
	t.Helper()
	end = tunnelAt(t, "tunnel0", port)
	sh(t, "ip addr add 10.9.0.1/24 dev tunnel0; ip link set tunnel0 up")
	t.Setenv("SSH_CONNECTION", "10.9.0.2 40000 10.9.0.1 22")
	return end
}
