// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// served is a real socket that receives the packets sent at fw1, if the kernel passes them.
type served struct {
	*testing.T
	socket net.PacketConn
	also   func() string // adds text to a failure
}

// serve listens on port 9 of fw0, for any source.
func serve(t *testing.T) *served {
	t.Helper()
	sh(t, `ip link set lo up; ip link set fw0 address 02:00:00:00:00:02; ip addr add 2001:db8::1/64 dev fw0 nodad
ip route add default dev fw0; ip -6 route add default dev fw0
for f in all fw0; do echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter; done`)
	socket, err := net.ListenPacket("udp", ":9")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &served{t, socket, func() string { return "" }}
}

// reach sends a packet from each source, and returns the sources whose packets reach the socket. The last packet is from a source that is never
// banned. When it has arrived, missing packets are lost.
func (s *served) reach(from ...string) (got []string) {
	s.Helper()
	packets := []string{}
	for _, a := range append(from, "192.0.2.250") {
		to := "192.0.2.1:9"
		if strings.Contains(a, ":") {
			a, to = "["+a+"]", "[2001:db8::1]:9"
		}
		packets = append(packets, fmt.Sprintf("udp %s:5 > %s", a, to))
	}
	if err := testutil.SendFor("fw1", packets, func(sent int) bool { return sent < 1 }); err != nil {
		s.Fatal(err)
	}
	buffer := make([]byte, 2048)
	for {
		s.socket.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, peer, err := s.socket.ReadFrom(buffer)
		if err != nil {
			s.Fatalf("not even the packet after those of %v arrives: %v", from, err)
		}
		if a := peer.(*net.UDPAddr).AddrPort().Addr().Unmap().String(); a == "192.0.2.250" {
			return got
		} else {
			got = append(got, a)
		}
	}
}

// banned waits until exactly the sources in want cannot reach the socket. The parameter of has all sources.
func (s *served) banned(when string, of []string, want ...string) {
	s.Helper()
	var got []string
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		reach := strings.Join(s.reach(of...), " ")
		got = nil
		for _, a := range of {
			if !strings.Contains(" "+reach+" ", " "+a+" ") {
				got = append(got, a)
			}
		}
		if strings.Join(got, " ") == strings.Join(want, " ") {
			return
		}
	}
	s.Fatalf("%s: packets of %v do not arrive, want those of %v\n%s\n%s", when, got, want, mustFloodwall(s.T, "blocked"), s.also())
}

// fail2ban is Debian's fail2ban, with all its files in a directory of the test.
type fail2ban struct {
	*testing.T
	dir      string
	sessions int
}

func newFail2ban(t *testing.T, jails string) *fail2ban {
	t.Helper()
	testutil.RequireTool(t, "fail2ban-server")
	f := &fail2ban{T: t, dir: t.TempDir()}
	action, err := filepath.Abs("../../contrib/fail2ban/floodwall.conf")
	if err != nil {
		t.Fatal(err)
	}
	sh(t, fmt.Sprintf("cd %s; mkdir action.d; ln -s %s action.d/; ln -s /etc/fail2ban/filter.d filter.d; : >auth.log", f.dir, action))
	f.write("fail2ban.conf", fmt.Sprintf("[Definition]\nloglevel = INFO\nlogtarget = %[1]s/log\nsyslogsocket = auto\nsocket = %[1]s/sock\npidfile = %[1]s/pid\n"+
		"dbfile = %[1]s/db\ndbpurgeage = 1d\ndbmaxmatches = 10\n[Thread]\n", f.dir))
	f.write("jail.conf", fmt.Sprintf("[DEFAULT]\nbackend = polling\nmaxretry = 3\nfindtime = 10m\nusedns = no\nignoreself = false\n"+
		"logpath = %[1]s/auth.log\naction = floodwall[entered=%[1]s/entered-<name>]\nenabled = true\n%[2]s", f.dir, jails))
	t.Cleanup(f.stop)
	return f
}

func (f *fail2ban) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// client runs fail2ban-client.
func (f *fail2ban) client(args ...string) (string, error) {
	out, err := exec.Command("fail2ban-client", append([]string{"-c", f.dir, "-s", f.dir + "/sock", "-p", f.dir + "/pid"}, args...)...).CombinedOutput()
	return string(out), err
}

func (f *fail2ban) must(args ...string) {
	f.Helper()
	if out, err := f.client(args...); err != nil {
		f.Fatalf("fail2ban-client %v: %v\n%s\n%s", args, err, out, f.log())
	}
}

func (f *fail2ban) stop() { f.client("stop") }

func (f *fail2ban) log() string {
	text, _ := os.ReadFile(f.dir + "/log")
	return string(text)
}

// attempts writes log lines of sshd in which an address tries user names.
func (f *fail2ban) attempts(from string, n int) {
	f.Helper()
	log, err := os.OpenFile(f.dir+"/auth.log", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer log.Close()
	for i := range n {
		f.sessions++ // fail2ban takes all lines of one process for one client
		fmt.Fprintf(log, "%s host sshd[%d]: Failed password for invalid user admin from %s port %d ssh2\n",
			time.Now().Format("Jan _2 15:04:05"), f.sessions, from, 40000+i)
	}
}

const fail2banPolicy = `devices: [fw0]
never: [198.51.100.77]
sets: {bans: {dynamic: true, max: 1000, timeout: 1h}}
rules: [{name: banned, from: $bans, then: drop}]
`

// TestFail2ban runs Debian's fail2ban on the log of sshd. A client that guesses passwords must not reach a real socket any more. It must reach the
// socket again when its jail unbans it. A restart of fail2ban, a kill of fail2ban, and `floodwall unload` may neither leave nor lose a ban.
func TestFail2ban(t *testing.T) {
	if !inside(t) {
		return
	}
	s, f := serve(t), newFail2ban(t, "filter = sshd\n[sshd]\nbantime = 1h\n[short]\nmaxretry = 4\nbantime = 4s\n")
	f.write("policy.yaml", fail2banPolicy)
	policy := f.dir + "/policy.yaml"
	mustFloodwall(t, "apply", policy)
	s.also = f.log
	f.must("start")
	const one, six, hand, never = "198.51.100.7", "2001:db8:7::1", "198.51.100.8", "198.51.100.77"
	all := []string{one, six, hand, never}
	s.banned("at first", all)
	mustFloodwall(t, "block", hand, "--for", "forever")
	for _, a := range all {
		f.attempts(a, 4)
	}
	s.banned("after four attempts of each", all, one, six, hand)
	waitFor(t, "both jails", func() bool { return strings.Count(f.log(), "NOTICE  [short] Ban") == 4 })
	waitFor(t, "the short jail's end", func() bool { return strings.Count(f.log(), "NOTICE  [short] Unban") == 4 })
	s.banned("after the end of a jail that is shorter", all, one, six, hand)
	out := mustFloodwall(t, "blocked")
	for _, want := range []string{one + " +bans +59m\\S* +fail2ban +sshd", six + " +bans +59m\\S* +fail2ban +sshd", hand + " +bans +forever +manual"} {
		if !matches(want, out) {
			t.Errorf("blocked does not print %s:\n%s", want, out)
		}
	}
	if text := "198.51.100.77 has addresses that are never banned"; !strings.Contains(f.log(), text) {
		t.Errorf("the log does not say %q:\n%s", text, f.log())
	}

	f.must("stop")
	s.banned("without fail2ban", all, hand)
	f.must("start")
	s.banned("with fail2ban again", all, one, six, hand)
	if out := mustFloodwall(t, "blocked"); !matches(one+" +bans +5[0-9]m", out) {
		t.Errorf("the ban has another end after a restart:\n%s", out)
	}
	f.must("set", "sshd", "unbanip", one, hand)
	s.banned("after an unban", all, six, hand)

	// `unload` deletes the set. The client at the address continues.
	mustFloodwall(t, "unload")
	mustFloodwall(t, "apply", policy)
	s.banned("after unload and apply", all)
	waitFor(t, "a ban anew", func() bool {
		f.attempts(six, 4)
		time.Sleep(time.Second)
		return strings.Contains(mustFloodwall(t, "blocked"), six)
	})
	if !strings.Contains(f.log(), "Reban "+six) && !strings.Contains(f.log(), "Ban "+six) {
		t.Errorf("the log:\n%s", f.log())
	}

	// While no policy runs, fail2ban logs an error. After the next apply, bans take effect again.
	mustFloodwall(t, "unload")
	f.attempts(one, 4)
	waitFor(t, "an error", func() bool { return strings.Contains(f.log(), "nothing is loaded") })
	mustFloodwall(t, "apply", policy)
	f.attempts("198.51.100.9", 4)
	s.banned("with a policy again", []string{"198.51.100.9"}, "198.51.100.9")
	f.must("stop")
	if out := mustFloodwall(t, "blocked", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("fail2ban leaves bans behind: %s", out)
	}
	if left, _ := filepath.Glob(f.dir + "/entered*"); left != nil {
		t.Errorf("fail2ban leaves %v behind", left)
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }
