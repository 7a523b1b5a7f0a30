package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tunnelAt is a tunnel of this process until it is closed, whose packets come to a port of UDP.
func tunnelAt(t *testing.T, device string, port int) (end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	return func() { socket.Close(); unix.Close(fd) }
}

// TestSessionInTunnel applies policies in a session that comes through a tunnel whose carrier comes to a device of the policy. One that lets nobody
// begin at the tunnel's port is refused, though a trial of it would look good: this host's own packets make replies of the carrier's for some
// minutes. Where the tunnel may come from this host, it is a note. A policy with the service of the hint is applied.
func TestSessionInTunnel(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for _, tunnel := range []struct {
		port    int
		refused bool
		targets []string // all are asked in the same way
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

// tunnelClosed is a policy that lets nobody begin at the port of a tunnel.
const tunnelClosed = "devices: [fw0]\ndefault: drop\nservices:\n  - {name: web, port: tcp/443}\n"

// openTunnel has the session of this process come through a tunnel, until that is closed.
func openTunnel(t *testing.T, port int) (end func()) {
	t.Helper()
	end = tunnelAt(t, "tunnel0", port)
	sh(t, "ip addr add 10.9.0.1/24 dev tunnel0; ip link set tunnel0 up")
	t.Setenv("SSH_CONNECTION", "10.9.0.2 40000 10.9.0.1 22")
	return end
}
