// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/test/testutil"
)

// servedHost is a host with real programs. Its client connects to ports of the host before and after `floodwall on`.
type servedHost struct {
	*onHost
	client, inner *testutil.Elsewhere // the world, at 203.0.113.5 and 192.0.2.254, and the network behind the host, 10.9.0.0/24
	root          string              // the root directory of the programs of Debian
}

// servedHosts are the hosts. ports are those to which the client connects. says are parts of the screen.
var servedHosts = []struct {
	name  string
	root  string // the system of scripts/debian with its programs; "": this machine
	make  func(*servedHost)
	ports string
	says  []string
	after func(*servedHost) // checks more after on
}{
	{
		name: "web server",
		make: func(s *servedHost) {
			s.serve("127.0.0.1:3000", "0.0.0.0:5432")
			s.nginx("80", "443")
		},
		ports: "tcp/22 tcp/80 tcp/443 tcp/3000 tcp/5432 tcp/8080",
		says:  []string{"\n           tcp/80 (nginx)\n", "\n           tcp/443 (nginx)\n"},
	},
	{
		name: "mail server", root: "servers",
		make: func(s *servedHost) {
			s.in("postconf -e maillog_file=/dev/stdout inet_interfaces=all compatibility_level=3.6 myhostname=mail.example.org; " +
				"postconf -M submission/inet='submission inet n - n - - smtpd'; newaliases; echo 'listen = *' >/etc/dovecot/local.conf; echo 'ssl = no' >>/etc/dovecot/local.conf")
			s.program("postfix start-fg")
			s.program("dovecot -F")
			for _, port := range []string{"25", "587", "143"} {
				s.listens(port)
			}
		},
		ports: "tcp/22 tcp/25 tcp/587 tcp/143 tcp/993",
		says:  []string{"\n           tcp/25 (", "\n           tcp/143 (", "\n           tcp/587 ("},
	},
	{
		name: "resolver",
		make: func(s *servedHost) {
			dir := s.TempDir()
			writeFile(s.T, dir+"/unbound.conf", "server:\n chroot: \"\"\n directory: "+dir+"\n username: \"\"\n pidfile: \"\"\n interface: 0.0.0.0\n access-control: 0.0.0.0/0 allow\n do-daemonize: no\n use-syslog: no\n"+
				" local-zone: . redirect\n local-data: \". A 192.0.2.7\"\nremote-control:\n control-enable: no\n")
			s.root = "/"
			s.program("unbound -c " + dir + "/unbound.conf")
			s.listens("53")
		},
		ports: "tcp/22 udp/53 tcp/53 udp/54",
		says:  []string{"\n           udp/53 (unbound)\n"},
	},
	{
		name: "game server",
		make: func(s *servedHost) {
			echoUDP(s.T, "0.0.0.0:27015")
			echoUDP(s.T, "0.0.0.0:7777")
			s.serve("0.0.0.0:27015")
		},
		ports: "tcp/22 udp/27015 udp/7777 tcp/27015 udp/7778",
		says:  []string{"\n           udp/27015 (", "\n           udp/7777 ("},
	},
	{
		name: "Docker with a published port", root: "managers",
		make: func(s *servedHost) {
			s.forwards()
			s.in("nft list ruleset >/dev/null")
			s.dockerd()
			// No image is here to run. These are the rules that dockerd writes for `docker run -p 8080:80`, with a server at 10.9.0.2.
			s.in("iptables -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80; " +
				"iptables -I FORWARD -i fw0 -d 10.9.0.2 -p tcp --dport 80 -j ACCEPT; iptables -I FORWARD -o fw0 -j ACCEPT; iptables -I FORWARD -d 10.9.0.2 -m conntrack --ctstate ESTABLISHED -j ACCEPT")
		},
		ports: "tcp/22 tcp/8080 tcp/8081 tcp/80",
		says:  []string{"\n           tcp/8080 (by NAT, 10.9.0.2:80)\n", "docker0, a bridge: no default route leads there\n", "beside     docker: these rules stay"},
	},
	{
		name: "router with two networks",
		make: func(s *servedHost) {
			s.forwards()
			sh(s.T, `nft -f - <<end
table ip nat {
	chain pre {
		type nat hook prerouting priority dstnat
		iifname fw0 udp dport 10000-10999 dnat to 10.9.0.2
		iifname fw0 tcp dport 8443 dnat to 10.9.0.2:80
		iifname srv0 udp dport 53 redirect to :5300
		iifname fw0 tcp dport != { 22, 8443 } dnat to 10.9.0.2
	}
	chain post {
		type nat hook postrouting priority srcnat
		oifname fw0 masquerade
	}
}
end`)
			s.inner.Do(func() { echoUDP(s.T, "0.0.0.0:10500") })
		},
		ports: "tcp/22 tcp/8443 udp/10500 udp/11000 udp/53 tcp/81",
		says: []string{
			"unfiltered srv0: no default route leads there\n", "\n           udp/10000-10999 (by NAT, 10.9.0.2)\n", "\n           tcp/8443 (by NAT, 10.9.0.2:80)\n",
			"closed     what NAT sends on to 10.9.0.2 is closed at every port that is not open above (iifname \"fw0\" tcp dport != { 22, 8443 } dnat to 10.9.0.2)",
		},
		after: func(s *servedHost) {
			s.inner.Do(func() {
				if !asksPort("udp", "192.0.2.254:5353") {
					s.Error("the network behind the router gets no answers from outside")
				}
			})
		},
	},
	{
		name: "keepalived pair", root: "servers",
		make: func(s *servedHost) {
			s.keepalived("BACKUP", 50)
			waitFor(s.T, "the socket of keepalived", func() bool {
				protocols, err := sockets.RawProtocols()
				return err == nil && slices.Contains(protocols, 112)
			})
			s.client.Do(func() { s.keepalived("MASTER", 100) })
			waitFor(s.T, "the address of the pair at the other router", func() bool {
				has := false
				s.client.Do(func() { has = hasAddress(s.T, "192.0.2.100") })
				return has
			})
		},
		ports: "tcp/22",
		says:  []string{"{name: raw-112, from: "},
		after: func(s *servedHost) {
			for range 20 { // the other router has priority 100, and sends each second
				if hasAddress(s.T, "192.0.2.100") {
					s.Fatal("the host has taken the address of the pair, so it does not hear the other router")
				}
				time.Sleep(300 * time.Millisecond)
			}
		},
	},
	{
		name: "without systemd",
		make: func(s *servedHost) {
			os.Remove(s.script)
			hide(s.T, "systemctl")
			s.nginx("80")
		},
		ports: "tcp/22 tcp/80 tcp/8080",
		says:  []string{"nothing loads it after a reboot, and no daemon runs: this host has no systemd"},
	},
	{
		name: "ufw", root: "managers",
		make: func(s *servedHost) {
			s.serve("0.0.0.0:80", "0.0.0.0:8080")
			s.in("ufw default deny incoming; ufw allow 22/tcp; ufw allow 80/tcp; ufw --force enable")
		},
		ports: "tcp/22 tcp/80 tcp/8080 tcp/8081",
		says:  []string{"beside     ufw: these rules stay, and what they drop stays closed"},
	},
	{
		name: "firewalld", root: "managers",
		make: func(s *servedHost) {
			s.serve("0.0.0.0:80", "0.0.0.0:8080")
			s.in("firewall-offline-cmd -q --set-default-zone=public; firewall-offline-cmd -q --zone=public --add-service=http")
			s.firewalld()
		},
		ports: "tcp/22 tcp/80 tcp/8080 tcp/8081",
		says:  []string{"beside     firewalld: these rules stay"},
	},
}

// TestOnServed turns the firewall on, on hosts with real programs. A port that answered before must answer after, unless the screen named it before
// the question. A port that did not answer must not answer after.
func TestOnServed(t *testing.T) {
	for _, h := range servedHosts {
		t.Run(h.name, func(t *testing.T) {
			root := "/"
			if h.root != "" {
				root = debianRoot(t, h.root)
			}
			if !inside(t) {
				return
			}
			s := newServed(t, h.root, root)
			h.make(s)
			before := s.open(h.ports)
			if !strings.Contains(before, "tcp/22 ") {
				t.Fatalf("before on, only these answer: %s", before)
			}
			out := s.done()
			screen, _, _ := strings.Cut(out, firstQuestion)
			t.Log(screen)
			after := s.open(h.ports)
			t.Logf("before: %s; after: %s", before, after)
			_, closed, _ := strings.Cut(screen, "\nclosed ")
			for _, port := range strings.Fields(h.ports) {
				was, is := strings.Contains(before, port+" "), strings.Contains(after, port+" ")
				// A rule that sends on all ports but some names no port.
				all := port == "tcp/81" && strings.Contains(closed, "every port that is not open above")
				if was && !is && !strings.Contains(closed, port+" ") && !all {
					t.Errorf("%s was served, and is not, and the screen does not name it", port)
				}
				if is && !was {
					t.Errorf("%s is served, and was not", port)
				}
			}
			for _, part := range h.says {
				if !strings.Contains(screen, part) {
					t.Errorf("the screen has no %q:\n%s", part, screen)
				}
			}
			if h.after != nil {
				h.after(s)
			}
			mustFloodwall(t, "off")
			if again := s.open(h.ports); again != before {
				t.Errorf("after off these answer: %s, before on: %s", again, before)
			}
		})
	}
}

// debianRoot returns a system of scripts/debian. The process inside the namespaces gets it from the environment.
func debianRoot(t *testing.T, name string) string {
	t.Helper()
	if name == "managers" {
		return managersRoot(t)
	}
	const variable = "FLOODWALL_TEST_SERVERS"
	if os.Getenv(variable) == "" {
		os.Setenv(variable, testutil.Debian(t, name))
	}
	return os.Getenv(variable)
}

func newServed(t *testing.T, name, lower string) *servedHost {
	t.Helper()
	s := &servedHost{newOnHost(t), testutil.NewElsewhere(t), testutil.NewElsewhere(t), "/"}
	testutil.Veth(t, "srv0", "srv1", "10.9.0.1/24")
	s.client.Take(t, "fw1")
	s.inner.Take(t, "srv1")
	s.client.Do(func() {
		script(t, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.254/24 dev fw1; ip addr add 203.0.113.5/32 dev fw1; ip route add 10.9.0.0/24 via 192.0.2.1")
		echoUDP(t, "0.0.0.0:5353")
	})
	s.inner.Do(func() {
		script(t, "ip link set lo up; ip link set srv1 up; ip addr add 10.9.0.2/24 dev srv1; ip route add default via 10.9.0.1")
		greet(t, ":80")
		greet(t, ":81")
	})
	testutil.WaitUp(t, "fw0")
	testutil.WaitUp(t, "srv0")
	s.serve("0.0.0.0:22")
	switch name {
	case "managers":
		s.root = newManagers(&watch{T: t}, lower).root
	case "servers":
		s.root = chrooted(t, lower)
	}
	return s
}

// chrooted makes a system that is run with chroot, and returns its root directory. Its changes are stored in memory. It has device files of its own:
// nothing that is deleted there may be the machine's.
func chrooted(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	asRoot := func(text string) {
		cmd := exec.Command("sh", "-ec", strings.NewReplacer("ROOT", dir, "LOWER", lower).Replace(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
	asRoot(`mount -t tmpfs system ROOT
mkdir ROOT/upper ROOT/work ROOT/root
mount -t overlay system -o lowerdir=LOWER,upperdir=ROOT/upper,workdir=ROOT/work ROOT/root
mount -t proc proc ROOT/root/proc; mount -t sysfs sysfs ROOT/root/sys; mount -t cgroup2 cgroup2 ROOT/root/sys/fs/cgroup
mount -t tmpfs run ROOT/root/run; mkdir ROOT/root/run/dbus ROOT/root/run/lock`)
	t.Cleanup(func() { asRoot("umount --recursive --lazy ROOT") })
	return filepath.Join(dir, "root")
}

// command returns a command line as root of the host's system.
func (s *servedHost) command(line string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-ec", line)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root, Credential: &syscall.Credential{}, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *servedHost) in(line string) {
	s.Helper()
	if out, err := s.command(line).CombinedOutput(); err != nil {
		s.Errorf("%s: %v\n%s", line, err, out)
	}
}

// program runs a server until the end of the test, in the network namespace of the calling thread.
func (s *servedHost) program(line string) {
	s.Helper()
	cmd, said := s.command("exec "+line), new(lines)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, time.Minute
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID // its processes end with the first one
	if err := cmd.Start(); err != nil {
		s.Error(err)
		return
	}
	s.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if s.Failed() {
			s.Logf("%s:\n%s", line, said)
		}
	})
}

// nginx serves ports with the nginx of this machine.
func (s *servedHost) nginx(ports ...string) {
	s.Helper()
	dir := s.TempDir()
	text := "daemon off; master_process off; pid " + dir + "/pid; error_log stderr; events {}\nhttp { access_log off; "
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += kind + "_temp_path " + dir + "; "
	}
	for _, port := range ports {
		text += "server { listen " + port + "; location / { return 200 hello; } }\n"
	}
	writeFile(s.T, dir+"/nginx.conf", text+"}\n")
	s.root = "/"
	s.program("nginx -e stderr -c " + dir + "/nginx.conf")
	for _, port := range ports {
		s.listens(port)
	}
}

// listens waits until a program listens on a TCP port.
func (s *servedHost) listens(port string) {
	s.Helper()
	waitFor(s.T, "a server on port "+port, func() bool {
		out, _ := exec.Command("ss", "-Hltn", "sport = :"+port).Output()
		return len(out) > 0
	})
}

func (s *servedHost) forwards() { sh(s.T, "sysctl -qw net.ipv4.ip_forward=1") }

// managed starts a daemon of another firewall, and waits until it is ready.
func (s *servedHost) managed(line, ready string) {
	s.Helper()
	s.program(line)
	waitFor(s.T, line, func() bool { return s.command(ready).Run() == nil })
}

func (s *servedHost) firewalld() { s.managed("firewalld --nofork --nopid", "firewall-cmd --state") }

func (s *servedHost) dockerd() {
	s.managed("dockerd --storage-driver vfs -H unix:///run/docker.sock", "docker info")
}

// keepalived starts a router of a pair whose address is 192.0.2.100.
func (s *servedHost) keepalived(state string, priority int) {
	s.Helper()
	device := map[string]string{"BACKUP": "fw0", "MASTER": "fw1"}[state]
	writeFile(s.T, s.root+"/etc/"+state+".conf", fmt.Sprintf("vrrp_instance pair {\n state %s\n interface %s\n virtual_router_id 51\n priority %d\n advert_int 1\n virtual_ipaddress {\n  192.0.2.100/32\n }\n}\n",
		state, device, priority))
	s.program(fmt.Sprintf("keepalived --dont-fork --log-console --vrrp -f /etc/%s.conf -p /run/%[1]s.pid -r /run/%[1]s-vrrp.pid", state))
}

// hasAddress reports whether the network namespace of the calling thread has an address.
func hasAddress(t *testing.T, address string) bool {
	out, err := exec.Command("ip", "-o", "addr", "show", "to", address).Output()
	if err != nil {
		t.Error(err)
	}
	return len(out) > 0
}

// echoUDP starts a UDP server that sends back what it receives.
func echoUDP(t *testing.T, address string) {
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
}

// open returns the ports of a list that answer the client.
func (s *servedHost) open(ports string) (list string) {
	for _, port := range strings.Fields(ports) {
		network, number, _ := strings.Cut(port, "/")
		s.client.Do(func() {
			if asksPort(network, "192.0.2.1:"+number) {
				list += port + " "
			}
		})
	}
	return list
}

// asksPort asks a port, and asks again twice, because a busy host may answer late. The question over UDP is one of DNS.
func asksPort(network, address string) bool {
	q := new(dns.Msg).SetQuestion(".", dns.TypeA)
	text, _ := q.Pack() // a question for the root is valid
	for patience := 500 * time.Millisecond; patience <= 2*time.Second; patience *= 2 {
		c, err := net.DialTimeout(network, address, patience)
		if err != nil {
			if strings.Contains(err.Error(), "refused") {
				return false
			}
			continue
		}
		defer c.Close()
		if network == "tcp" {
			return true
		}
		if _, err := c.Write(text); err != nil {
			continue
		}
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1500)); err == nil {
			return true
		}
	}
	return false
}
