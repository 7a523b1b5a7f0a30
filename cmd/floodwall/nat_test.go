package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/testutil"
)

// portForwards are the ways by which hosts translate destinations, as scripts for sh. All publish the ports 8080, 8081 and 8082 of the
// host as 80, 81 and 80 of a server behind it, redirect 8084 to 84 of the host, and hide the server's own connections behind the host.
var portForwards = map[string]string{
	"nft": `nft -f - <<end
table inet translate {
	chain pre {
		type nat hook prerouting priority dstnat
		iifname fw0 meta nfproto ipv4 tcp dport { 8080, 8082 } dnat ip to 10.9.0.2:80
		iifname fw0 meta nfproto ipv4 tcp dport 8081 dnat ip to 10.9.0.2:81
		iifname fw0 meta nfproto ipv6 tcp dport { 8080, 8082 } dnat ip6 to [fd09::2]:80
		iifname fw0 meta nfproto ipv6 tcp dport 8081 dnat ip6 to [fd09::2]:81
		iifname fw0 tcp dport 8084 redirect to :84
	}
	chain post {
		type nat hook postrouting priority srcnat
		oifname fw0 masquerade
	}
}
end`,
	"iptables": `for tables in "iptables 10.9.0.2" "ip6tables [fd09::2]"; do set -- $tables
$1 -t nat -A PREROUTING -i fw0 -p tcp -m multiport --dports 8080,8082 -j DNAT --to-destination $2:80
$1 -t nat -A PREROUTING -i fw0 -p tcp --dport 8081 -j DNAT --to-destination $2:81
$1 -t nat -A PREROUTING -i fw0 -p tcp --dport 8084 -j REDIRECT --to-ports 84
$1 -t nat -A POSTROUTING -o fw0 -j MASQUERADE; done`,
	"docker": `for tables in "iptables 10.9.0.2 10.9.0.0/24" "ip6tables [fd09::2] fd09::/64"; do set -- $tables
$1 -t nat -N DOCKER; $1 -N DOCKER; $1 -P FORWARD DROP
$1 -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
$1 -t nat -A POSTROUTING -s $3 ! -o srv0 -j MASQUERADE
for port in 8080:80 8082:80 8081:81; do
$1 -t nat -A DOCKER ! -i srv0 -p tcp -m tcp --dport ${port%:*} -j DNAT --to-destination $2:${port#*:}; done
$1 -t nat -A DOCKER ! -i srv0 -p tcp --dport 8084 -j REDIRECT --to-ports 84
$1 -A FORWARD -o srv0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$1 -A FORWARD -i srv0 -j ACCEPT; $1 -A FORWARD -o srv0 -j DOCKER
for port in 80 81; do $1 -A DOCKER ! -i srv0 -o srv0 -p tcp -m tcp --dport $port -j ACCEPT; done; done`,
}

// natPolicies are policies that offer the published port 8080 and the redirected port 8084, and not the ports 8081, 8082, 80 (of IPv4
// and IPv6 alike) and 84: that a packet is sent on to a port or an address that the policy passes must not help it.
var natPolicies = map[string]string{
	"services": `services:
  - {name: app, port: [tcp/8080, tcp/8084]}
  - {name: answers, port: tcp/32768-60999}
`,
	"services and state": `rules:
  - {name: known, state: [established, related], then: pass}
services:
  - {name: app, port: [tcp/8080, tcp/8084]}
  - {name: web, port: tcp/81}
`,
	"rules by state": `sets:
  front: ["192.0.2.1", "2001:db8::1"]
  many: {file: many.txt}
rules:
  - {name: known, state: [established, related], then: pass}
  - {name: inner, to: [10.9.0.0/24, "fd09::/64"], port: [tcp/80, tcp/81, tcp/443], then: pass}
  - {name: closed, not: {to: local}, proto: tcp, then: drop}
  - {name: others, not: {to: $many}, proto: tcp, then: drop}
  - {name: published, state: new, to: $front, port: tcp/8080, then: pass}
  - {name: redirected, state: new, to: local, port: [tcp/8084, tcp/9000-9010], then: pass}
`,
}

// TestTranslated connects to ports of a host that sends connections on to a server behind it, on each target, with each way to translate.
// A policy decides by the address and the port that the client asked for, at whichever stage.
func TestTranslated(t *testing.T) {
	for forward := range portForwards {
		t.Run(forward, func(t *testing.T) {
			if inside(t) {
				translated(t, forward)
			}
		})
	}
}

func translated(t *testing.T, forward string) {
	s := newNATSite(t, portForwards[forward])
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "198.18.%d.0/25\n", i)
	}
	writeFile(t, filepath.Join(dir, "many.txt"), many.String()+"192.0.2.1\n2001:db8::1\n")
	for name, text := range natPolicies {
		writeFile(t, file, "devices: [fw0]\ndefault: drop\n"+text)
		for _, target := range []string{"xdp", "nftables", "iptables"} {
			mustFloodwall(t, "apply", file, "--force", "--target", target)
			for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
				for port, want := range map[string]bool{"8080": true, "8084": true, "8081": false, "8082": false, "80": false, "84": false} {
					if err := s.connect(s.client, net.JoinHostPort(address, port), want); (err == nil) != want {
						t.Errorf("%s, %s: port %s of %s: %v, want a connection: %t", target, name, port, address, err, want)
					}
				}
			}
			for _, address := range []string{"192.0.2.2", "2001:db8::2"} {
				if err := s.connect(s.server, net.JoinHostPort(address, "7777"), true); err != nil {
					t.Errorf("%s, %s: the server behind the host to %s: %v", target, name, address, err)
				}
			}
		}
	}
	mustFloodwall(t, "unload")
}

// natSite is a host with a client in front of it, by fw0, and a server behind it.
type natSite struct{ client, server *testutil.Elsewhere }

func newNATSite(t *testing.T, forwards string) natSite {
	s := natSite{testutil.NewElsewhere(t), testutil.NewElsewhere(t)}
	testutil.Veth(t, "srv0", "srv1", "10.9.0.1/24", "fd09::1/64")
	script(t, "ip addr add 2001:db8::1/64 dev fw0 nodad; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n"+forwards)
	s.client.Take(t, "fw1")
	s.server.Take(t, "srv1")
	behind := func(where *testutil.Elsewhere, device, address, six, gateways string, ports ...int) {
		where.Do(func() {
			script(t, strings.NewReplacer("DEV", device, "ADDR", address, "SIX", six).Replace("ip link set lo up; ip link set DEV up; "+
				"ip addr add ADDR dev DEV; ip addr add SIX dev DEV nodad")+"\n"+gateways)
			for _, port := range ports {
				greet(t, fmt.Sprintf(":%d", port))
			}
		})
	}
	behind(s.client, "fw1", "192.0.2.2/24", "2001:db8::2/64", "", 7777)
	behind(s.server, "srv1", "10.9.0.2/24", "fd09::2/64", "ip route add default via 10.9.0.1; ip -6 route add default via fd09::1", 80, 81)
	for _, port := range []string{":80", ":84", ":8080", ":8082"} {
		greet(t, port)
	}
	return s
}

// greet serves connections with a word.
func greet(t *testing.T, address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	testutil.Serve(t, l, func(c net.Conn) { c.Write([]byte("welcome")) })
}

// script runs lines of sh.
func script(t *testing.T, text string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", text).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", text, err, out)
	}
}

// connect reads the word that greets from an address. A connection that is not to be is not waited for long.
func (s natSite) connect(from *testutil.Elsewhere, address string, wait bool) (err error) {
	patience := 300 * time.Millisecond
	if wait {
		patience = 5 * time.Second
	}
	from.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = readGreeting(ctx, address)
	})
	return err
}

// readGreeting makes its socket on the calling thread, whose network namespace it is to have.
func readGreeting(ctx context.Context, address string) error {
	end, _ := ctx.Deadline()
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	family, sockaddr := syscall.AF_INET6, syscall.Sockaddr(nil)
	if four := to.IP.To4(); four != nil {
		family, sockaddr = syscall.AF_INET, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(four)}
	} else {
		sockaddr = &syscall.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP)}
	}
	socket, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	limit := syscall.NsecToTimeval(time.Until(end).Nanoseconds())
	err = errors.Join(syscall.SetsockoptTimeval(socket, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit),
		syscall.SetsockoptTimeval(socket, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit))
	if err == nil {
		err = syscall.Connect(socket, sockaddr)
	}
	if err != nil {
		return err
	}
	n, err := syscall.Read(socket, make([]byte, 10))
	if err == nil && n != len("welcome") {
		return fmt.Errorf("%d bytes were read", n)
	}
	return err
}
