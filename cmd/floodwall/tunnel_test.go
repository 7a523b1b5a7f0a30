package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tunnelAt is a tunnel of this process, whose packets come to a port of UDP.
func tunnelAt(t *testing.T, device string, port int) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	request, err := unix.NewIfreq(device)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
}

// TestSessionInTunnel applies policies in a session that comes through a tunnel whose carrier comes to a device of the policy. One that lets nobody
// begin at the tunnel's port is refused, though a trial of it would look good: this host's own packets make replies of the carrier's for some
// minutes. Where the tunnel may come from this host, it is a note. A policy with the service of the hint is applied.
func TestSessionInTunnel(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	const closed = "devices: [fw0]\ndefault: drop\nservices:\n  - {name: web, port: tcp/443}\n"
	for i, tunnel := range []struct {
		port    int
		refused bool
	}{{7000, true}, {51820, true}, {40123, false}} {
		device := fmt.Sprintf("tunnel%d", i)
		tunnelAt(t, device, tunnel.port)
		sh(t, fmt.Sprintf("ip addr add 10.9.%d.1/24 dev %s; ip link set %s up", i, device, device))
		t.Setenv("SSH_CONNECTION", fmt.Sprintf("10.9.%d.2 40000 10.9.%d.1 22", i, i))
		for _, target := range []string{"nftables", "xdp"}[min(i, 1):] { // both are asked in the same way
			writeFile(t, file, closed)
			out, err := floodwall("apply", file, "--target", target, "--confirm", "1m")
			service := fmt.Sprintf("- {name: %s, port: udp/%d}", device, tunnel.port)
			if !strings.Contains(out, "comes through the tunnel "+device) || !strings.Contains(out, "`"+service+"`") {
				t.Errorf("udp/%d, %s: apply does not tell how to keep the tunnel:\n%s", tunnel.port, target, out)
			}
			if (err != nil) != tunnel.refused {
				t.Errorf("udp/%d, %s: %v\n%s", tunnel.port, target, err, out)
			}
			writeFile(t, file, closed+"  "+service+"\n")
			if out, err := floodwall("apply", file, "--target", target); err != nil || strings.Contains(out, "through the tunnel") {
				t.Errorf("udp/%d, %s, with the service of the hint: %v\n%s", tunnel.port, target, err, out)
			}
			mustFloodwall(t, "unload")
		}
	}
	writeFile(t, file, closed)
	t.Setenv("SSH_CONNECTION", "10.9.0.2 40000 10.9.0.1 22")
	mustFloodwall(t, "apply", file, "--force")
}
