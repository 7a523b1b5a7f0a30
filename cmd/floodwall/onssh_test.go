// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// sshHost is a host with a real SSH server. Sessions come from other network namespaces.
type sshHost struct {
	*servedHost
	dir     string
	outside *testutil.Elsewhere // where the sessions come from
}

func newSSHHost(t *testing.T) *sshHost {
	t.Helper()
	testutil.RequireTool(t, "dropbear")
	t.Setenv("SSH_CONNECTION", "")
	// The keys are in a /root of this mount namespace.
	mountOver(t, "tmpfs", "/root", "mode=0700,uid=0,gid=0")
	s := &sshHost{servedHost: &servedHost{newOnHost(t), testutil.NewElsewhere(t), testutil.NewElsewhere(t), "/"}, dir: t.TempDir()}
	s.outside = s.client
	sh(t, "chmod 755 "+s.dir+" "+filepath.Dir(s.dir)+"; for d in /sys/fs/bpf /var/lib /etc/systemd/system /run/floodwall; do [ ! -d $d ] || chown 0:0 $d; done")
	s.in("cd " + s.dir + "; mkdir /root/.ssh; dropbearkey -t ed25519 -f host >/dev/null 2>&1; dropbearkey -t ed25519 -f user 2>/dev/null | grep ^ssh- >/root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys")
	s.in("ip addr add 2001:db8::1/64 dev fw0 nodad; ip -6 route add default via 2001:db8::fe")
	s.client.Take(t, "fw1")
	s.client.Do(func() {
		script(t, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.254/24 dev fw1; ip addr add 2001:db8::fe/64 dev fw1 nodad; for a in 5 6; do ip addr add 203.0.113.$a/32 dev fw1; done")
	})
	testutil.WaitUp(t, "fw0")
	s.sshd(22)
	return s
}

// sshd starts an SSH server at a port.
func (s *sshHost) sshd(port int) {
	s.Helper()
	cmd := s.command(fmt.Sprintf("exec dropbear -F -E -s -r %s/host -p %d", s.dir, port))
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	s.listens(fmt.Sprint(port))
}

// ssh is a command line that logs in. how are further arguments of dbclient, and the address.
func (s *sshHost) ssh(how string) string {
	return fmt.Sprintf("dbclient -y -y -i %s/user %s", s.dir, how)
}

// from is a shell command line where the sessions come from, as root.
func (s *sshHost) from(line string) *exec.Cmd {
	return s.command("exec nsenter --net=" + s.outside.Path() + " sh -c '" + line + "'")
}

// portForward returns a function that has an SSH session forward port 2200 of the client to the SSH server at a port, as ProxyJump does.
func portForward(port int) func(*sshHost) {
	return func(s *sshHost) {
		s.Helper()
		if port != 22 {
			s.sshd(port)
		}
		cmd := s.from("exec " + s.ssh(fmt.Sprintf("-N -L 2200:127.0.0.1:%d -p %[1]d root@192.0.2.1", port)))
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		waitFor(s.T, "the forwarded port", func() bool {
			out, _ := s.from("ss -Hltn sport = :2200").Output()
			return len(out) > 0
		})
	}
}

// linkLocal gives both ends of the link one address of the link each.
func (s *sshHost) linkLocal() {
	sh(s.T, "ip -6 addr flush dev fw0 scope link; ip addr add fe80::1/64 dev fw0 nodad")
	s.client.Do(func() { script(s.T, "ip -6 addr flush dev fw1 scope link; ip addr add fe80::fe/64 dev fw1 nodad") })
}

// behindNAT has the sessions come from a host whose address the client translates.
func (s *sshHost) behindNAT() {
	testutil.Veth(s.T, "lan0", "lan1")
	s.client.Take(s.T, "lan0")
	s.inner.Take(s.T, "lan1")
	s.client.Do(func() {
		script(s.T, "ip link set lan0 up; ip addr add 10.0.0.1/24 dev lan0; sysctl -qw net.ipv4.ip_forward=1; "+
			"nft 'table ip nat { chain post { type nat hook postrouting priority srcnat; oifname fw1 snat to 203.0.113.5; }; }'")
	})
	s.inner.Do(func() {
		script(s.T, "ip link set lo up; ip link set lan1 up; ip addr add 10.0.0.2/24 dev lan1; ip route add default via 10.0.0.1")
	})
	s.outside = s.inner
}

// login reports whether a new login works.
func (s *sshHost) login(how string) bool {
	return s.from("exec timeout 20 "+s.ssh(how)+" true").Run() == nil
}

// on runs `floodwall on` in a session, with answers to its questions. It returns the output.
func (s *sshHost) on(session, answers string) string {
	s.Helper()
	cmd := s.from("exec timeout 300 " + session)
	cmd.Stdin = strings.NewReader(answers)
	said := new(lines)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Run()
	return said.String()
}

// TestOnSSH runs on in real SSH sessions that come in different ways. With the first policy, new logins must go on. A policy that would drop them
// must be refused before the question. The screen names the address that has to pass.
func TestOnSSH(t *testing.T) {
	for _, way := range []struct {
		name   string
		make   func(s *sshHost)
		how    string // arguments of dbclient
		wrap   string // the command in the session that runs %s
		screen string // how the session is named
	}{
		{"a plain login", nil, "root@192.0.2.1", "%s", "203.0.113.5, by SSH to port 22"},
		{"by IPv6", nil, "root@2001:db8::1", "%s", "2001:db8::fe, by SSH to port 22"},
		{"at another port", func(s *sshHost) { s.sshd(2222) }, "-p 2222 root@192.0.2.1", "%s", "203.0.113.5, by SSH to port 2222"},
		{"from the host itself", nil, "root@192.0.2.1", "HOP root@127.0.0.1 %s", "203.0.113.5, by SSH to port 22"},
		{"by the host's own address", nil, "root@192.0.2.1", "HOP root@192.0.2.1 %s", "203.0.113.5, by SSH to port 22"},
		{"through two hops on the host", nil, "root@192.0.2.1", "HOP root@127.0.0.1 HOP root@192.0.2.1 %s", "203.0.113.5, by SSH to port 22"},
		{"through a port forward of the host", portForward(22), "-p 2200 root@127.0.0.1", "%s", "203.0.113.5, by SSH to port 22"},
		{"through a port forward at another port", portForward(2222), "-p 2200 root@127.0.0.1", "%s", "203.0.113.5, by SSH to port 2222"},
		{"by an address of the link", (*sshHost).linkLocal, "root@fe80::1%fw1", "%s", "fe80::fe, by SSH to port 22"},
		{"from behind NAT", (*sshHost).behindNAT, "root@192.0.2.1", "%s", "203.0.113.5, by SSH to port 22"},
		{"without an environment", nil, "root@192.0.2.1", "env -i PATH=$PATH %s", "203.0.113.5, by SSH to port 22"},
		{"a multiplexer that was attached again", nil, "root@192.0.2.1", "env SSH_CONNECTION='198.51.100.9 1000 192.0.2.1 22' %s", "203.0.113.5, by SSH to port 22"},
	} {
		t.Run(way.name, func(t *testing.T) {
			if !inside(t) {
				return
			}
			s := newSSHHost(t)
			s.client.Do(func() { script(t, "ip route replace 192.0.2.1 dev fw1 src 203.0.113.5") })
			sh(t, "ip route replace default via 192.0.2.254")
			if way.make != nil {
				way.make(s)
			}
			program, err := exec.LookPath("floodwall")
			if err != nil {
				t.Fatal(err)
			}
			session := func(args string) string {
				inner := strings.ReplaceAll(fmt.Sprintf(way.wrap, program+" on "+args), "HOP", s.ssh(""))
				return s.ssh(way.how) + ` "PATH=$PATH ` + strings.ReplaceAll(inner, "'", `\"`) + `"`
			}
			if !s.login(way.how) {
				t.Fatal("no login works before")
			}
			refused := strings.ReplaceAll(strings.Replace(standingPolicy, "203.0.113.0/24", "198.51.100.0/24", 1), "tcp/25", "tcp/2525")
			writeFile(t, operate.UsualPolicy, refused)
			if out := s.on(session("--confirm 20s"), "y\n\n"); !strings.Contains(out, "the policy would drop this session, from ") || strings.Contains(out, firstQuestion) {
				t.Errorf("a policy that locks out is not refused:\n%s", out)
			}
			sh(t, "rm -r /etc/floodwall")
			out := s.on(session("--confirm 2m"), "y\n\n")
			if !strings.Contains(out, way.screen) || !strings.Contains(out, "\nconfirmed: ") {
				t.Errorf("the screen does not name %q, or the policy is not kept:\n%s", way.screen, out)
			}
			if !s.login(way.how) {
				t.Errorf("no login works after on:\n%s", out)
			}
		})
	}
}

// TestOnTunnel runs on in a session through a tunnel, with a policy that closes the port of the tunnel's own packets. It must be refused.
func TestOnTunnel(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	defer openTunnel(t, 7000)()
	writeFile(t, operate.UsualPolicy, tunnelClosed)
	r := h.start("--yes")
	r.ends(1)
	if out := r.said.String(); !strings.Contains(out, "comes through the tunnel tunnel0") {
		t.Errorf("on in a tunnel:\n%s", out)
	}
	h.nothingLeft()
	sh(t, "rm -r /etc/floodwall")
	out := h.done() // the first policy opens the port
	if !strings.Contains(out, "udp/7000 (") || !strings.Contains(out, " tunnel0, a tunnel: no default route leads there\n") {
		t.Errorf("on in a tunnel:\n%s", out)
	}
}

// TestOnMosh runs on under mosh: the SSH connection with which it began has ended, and its UDP socket stays. The port must stay open, and the address
// from which SSH came must be able to log in.
func TestOnMosh(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	listenUDP(t, "0.0.0.0:60001")
	writeFile(t, "/proc/self/comm", "mosh-server")
	out := h.done()
	if !strings.Contains(out, "udp/60001 (mosh-server)") || !strings.Contains(out, "203.0.113.5, by SSH to port 22") {
		t.Errorf("on under mosh:\n%s", out)
	}
	h.wants("under mosh", map[string]string{"udp 203.0.113.5:40000 > 192.0.2.1:60001": "pass", "tcp 203.0.113.5:40000 > 192.0.2.1:22 S": "pass"})
}
