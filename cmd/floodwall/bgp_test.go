// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// upstreamRouter is a BIRD router one hop away from this host, in a network namespace of its own. Its addresses are 192.0.2.254 and 2001:db8::fe.
type upstreamRouter struct {
	t    *testing.T
	ns   *testutil.Elsewhere
	dir  string
	bird *exec.Cmd
}

const birdConfig = `
router id 192.0.2.254;
protocol device {}
ipv4 table master4; ipv6 table master6;
flow4 table flowtab4; flow6 table flowtab6;
protocol static { ipv4; route 198.18.0.0/24 blackhole; }
protocol bgp host {
  local 192.0.2.254 as 64501;
  neighbor 192.0.2.1 as 64500;
  password "%s";
  ttl security on;
  hold time 9;
  graceful restart on;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
  flow4 { table flowtab4; import all; export all; };
  flow6 { table flowtab6; import all; export all; };
}
protocol static flows { flow4 { table flowtab4; }; route flow4 { dst 192.0.2.0/24; proto = 17; sport = 19; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); }; }
`

func newUpstreamRouter(t *testing.T, password string) *upstreamRouter {
	t.Helper()
	testutil.RequireTool(t, "bird")
	r := &upstreamRouter{t: t, ns: testutil.NewElsewhere(t), dir: t.TempDir()}
	sh(t, "ip link set lo up; ip link add fw0 type veth peer name up0; ip addr add 192.0.2.1/24 dev fw0; ip addr add 2001:db8::1/64 dev fw0 nodad; ip link set fw0 up")
	r.ns.Take(t, "up0")
	r.ns.Do(func() {
		out, err := exec.Command("sh", "-ec", "ip link set lo up; ip addr add 192.0.2.254/24 dev up0; ip addr add 2001:db8::fe/64 dev up0 nodad; ip link set up0 up").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	writeFile(t, filepath.Join(r.dir, "bird.conf"), fmt.Sprintf(birdConfig, password))
	r.bird = exec.Command("bird", "-f", "-c", filepath.Join(r.dir, "bird.conf"), "-s", filepath.Join(r.dir, "ctl"), "-P", filepath.Join(r.dir, "pid"))
	r.bird.Stderr = os.Stderr
	r.ns.Do(func() {
		if err := r.bird.Start(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { r.bird.Process.Kill(); r.bird.Wait() })
	return r
}

// table returns the routes that the router received from this host.
func (r *upstreamRouter) table() string {
	out, err := exec.Command("birdc", "-r", "-s", filepath.Join(r.dir, "ctl"), "show route protocol host table all all").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("birdc: %v: %s", err, out)
	}
	return string(out)
}

// has waits until the router has a route, or until it has lost the route if want is false. It returns the last time at which that was not yet so.
func (r *upstreamRouter) has(route string, want bool) (notYet time.Time) {
	r.t.Helper()
	end := time.Now().Add(3 * time.Minute)
	notYet = time.Now()
	for {
		looked := time.Now()
		out := r.table()
		if !strings.HasPrefix(out, "birdc:") && strings.Contains(out, route) == want {
			return notYet
		}
		notYet = looked
		if time.Now().After(end) {
			r.t.Fatalf("the router has %q: want %t:\n%s", route, want, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// speakerProcess is the process `floodwall-bgp run`. Its user has no capability.
type speakerProcess struct {
	t          *testing.T
	run, state string
	cmd        *exec.Cmd
}

func (s *speakerProcess) start() {
	s.t.Helper()
	s.cmd = exec.Command("setpriv", "--ambient-caps", "-all", "--inh-caps", "-all", "--bounding-set", "-all", "floodwall", "bgp", "run", "--run", s.run, "--dir", s.state)
	log, err := os.OpenFile(filepath.Join(s.state, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := testutil.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	waitFor(s.t, "bgp run serves its socket", func() bool {
		c, err := net.Dial("unix", filepath.Join(s.run, bgp.Socket))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *speakerProcess) kill() { s.cmd.Process.Kill(); s.cmd.Wait() }

func (s *speakerProcess) log() string {
	text, _ := os.ReadFile(filepath.Join(s.state, "log"))
	return string(text)
}

const upstreamPolicy = `devices: [fw0]
default: pass
checks: off
upstream:
  as: 64500
  router_id: 192.0.2.1
  announce: [192.0.2.0/24, "2001:db8::/48"]
  live: %t
  hold: 1s
  rtbh: {next_hop: "2001:db8::1"}
  peers:
    - {address: 192.0.2.254, as: 64501, password_file: %s, ttl_security: 1, hold_time: 9s, graceful_restart: 3s, max: 4}
`

// floodwall runs a command and returns its output and exit code.
func (s *speakerProcess) floodwall(args ...string) (string, int) {
	out, err := exec.Command("floodwall", append(append([]string{"bgp"}, args...), "--run", s.run)...).CombinedOutput()
	return string(out), exitCode(err)
}

// says runs a command and checks its exit code and output.
func (s *speakerProcess) says(code int, want string, args ...string) string {
	s.t.Helper()
	out, is := s.floodwall(args...)
	if is != code || !strings.Contains(out, want) {
		s.t.Fatalf("floodwall-bgp %s: exit %d, want %d and %q:\n%s\nlog of bgp run:\n%s", strings.Join(args, " "), is, code, want, out, s.log())
	}
	return out
}

// newSpeakerProcess prepares `floodwall-bgp run` without starting it. It makes the directories and a file with the password of the BGP session. It
// also returns a path for the policy file.
func newSpeakerProcess(t *testing.T, password string) (s *speakerProcess, key, file string) {
	dir := t.TempDir()
	s = &speakerProcess{t: t, run: filepath.Join(dir, "run"), state: filepath.Join(dir, "state")}
	key = filepath.Join(dir, "key")
	if err := errors.Join(os.Mkdir(s.run, 0o700), os.Mkdir(s.state, 0o700), os.WriteFile(key, []byte(password+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return s, key, filepath.Join(dir, "policy.yaml")
}

// TestBGP uses BIRD as the router upstream, in a BGP session with TCP MD5 signatures and TTL security (GTSM). It checks this host's announcements in
// the router's tables.
func TestBGP(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s, key, file := newSpeakerProcess(t, "a secret word")
	router := newUpstreamRouter(t, "a secret word")
	writeFile(t, file, fmt.Sprintf(upstreamPolicy, false, key))
	mustFloodwall(t, "apply", file)
	t.Cleanup(func() { mustFloodwall(t, "unload") })

	s.says(1, "`floodwall-bgp run` does not run", "status")
	testDryRun(s)

	writeFile(t, file, fmt.Sprintf(upstreamPolicy, true, key))
	mustFloodwall(t, "apply", file)
	s.says(1, "the announcement is kept", "announce", "192.0.2.9", "--for", "2s")
	s.start()
	t.Cleanup(s.kill)
	testWithoutRights(t, s.cmd.Process.Pid)
	daemon := exec.Command("floodwall", "daemon", "--bgp", s.run)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	waitFor(t, "the session is established", func() bool { _, code := s.floodwall("status"); return code == 0 })
	waitFor(t, "the end of the announcement that was kept", func() bool {
		out, _ := s.floodwall("status")
		return !strings.Contains(out, "192.0.2.9")
	})

	testAnnounce(s, router)
	testRefused(s)
	testReceived(s)
	testKills(s, router, daemon)
}

// testDryRun checks that a dry run prints the routes but announces nothing.
func testDryRun(s *speakerProcess) {
	s.says(0, "dry run: 192.0.2.254 would get ipv4-flowspec [destination: 192.0.2.7/32][protocol: ==udp][source-port: ==53]", "announce", "192.0.2.7", "--proto", "udp", "--sport", "53")
	out := s.says(0, "dry run: 192.0.2.254 would get ipv4 192.0.2.7/32", "announce", "192.0.2.7", "--rtbh")
	if !strings.Contains(out, "65535:666") && !strings.Contains(out, "blackhole") || !strings.Contains(out, "no-export") {
		s.t.Errorf("the route of a black hole lacks its communities:\n%s", out)
	}
}

// testAnnounce makes an announcement of each kind. It checks each in the router's tables until its end.
func testAnnounce(s *speakerProcess, r *upstreamRouter) {
	s.says(0, "to 192.0.2.254", "announce", "192.0.2.7", "--proto", "udp", "--sport", "53,1000-2000", "--length", "1000-1500", "--for", "1h", "--why", "test")
	r.has("flow4 { dst 192.0.2.7/32; proto 17; sport 53,1000..2000; length 1000..1500; }", true)
	s.says(0, "to 192.0.2.254", "announce", "2001:db8::7", "--proto", "tcp", "--flags", "syn/syn,ack", "--for", "1h")
	r.has("flow6 { dst 2001:db8::7/128; next header 6; tcp flags 0x2/0x2 && 0x0/0x10; }", true)
	s.says(0, "to 192.0.2.254", "announce", "192.0.2.8", "--rtbh", "--for", "1h")
	r.has("192.0.2.8/32", true)
	if out := r.table(); !strings.Contains(out, "(65535,666)") || !strings.Contains(out, "(65535,65281)") || !strings.Contains(out, "(generic, 0x80060000, 0x0)") {
		s.t.Errorf("the routes lack communities:\n%s", out)
	}
	s.announcesBriefly(r, "2001:db8::8", "2001:db8::8/128")
	r.has("2001:db8::8/128", false)
	s.says(0, "withdrawn flowspec to 192.0.2.7/32", "withdraw", "192.0.2.7", "--now")
	r.has("192.0.2.7/32", false)
	s.says(0, "dry run: 192.0.2.254", "announce", "192.0.2.7", "--for", "1h", "--dry-run")
	s.says(0, "until", "announce", "192.0.2.7", "--proto", "udp", "--sport", "53,1000-2000", "--length", "1000-1500", "--for", "1h", "--why", "test")
	r.has("192.0.2.7/32", true)
}

// announcesBriefly announces a black hole for two seconds. If the machine is too busy for the router to show the route in this time, it announces the
// route again for a longer time.
func (s *speakerProcess) announcesBriefly(r *upstreamRouter, address, route string, flags ...string) {
	s.t.Helper()
	for lasts := 2 * time.Second; ; lasts *= 2 {
		s.says(0, "", append([]string{"announce", address, "--rtbh", "--for", lasts.String()}, flags...)...)
		if testutil.Eventually(lasts, func() bool { return strings.Contains(r.table(), route) }) {
			return
		}
		if lasts > time.Minute {
			s.t.Fatalf("the router does not get %s in the %v for which it is announced", route, lasts)
		}
	}
}

// testRefused requests announcements that the command must refuse.
func testRefused(s *speakerProcess) {
	s.says(1, "198.51.100.7/32 is not within `announce:`", "announce", "198.51.100.7")
	s.says(1, "192.0.0.0/16 is not within `announce:`", "announce", "192.0.0.0/16", "--proto", "udp")
	s.says(1, "rtbh gives up one address", "announce", "192.0.2.0/24", "--rtbh")
	s.says(1, "rtbh drops all packets", "announce", "192.0.2.9", "--rtbh", "--proto", "udp")
	s.says(2, `"upd" is no protocol`, "announce", "192.0.2.9", "--proto", "upd")
	s.says(2, "ports need a protocol", "announce", "192.0.2.9", "--sport", "53")
	s.says(2, `"53-52" is no number or range`, "announce", "192.0.2.9", "--proto", "udp", "--sport", "53-52")
	s.says(2, "192.0.2.7/24 has bits of a host set: 192.0.2.0/24", "announce", "192.0.2.7/24")
	s.says(2, "flag --for", "announce", "192.0.2.9", "--for", "8d")
	s.says(1, "nothing is announced for that", "withdraw", "192.0.2.200")
	s.says(2, "want DESTINATION or --all", "withdraw")
	s.says(0, "to 192.0.2.254", "announce", "192.0.2.10", "--proto", "udp", "--for", "1h") // the fourth
	s.says(1, "192.0.2.254 has its 4 announcements, and takes no more", "announce", "192.0.2.11", "--proto", "udp")
	s.says(0, "ends at", "withdraw", "192.0.2.10")
	out := s.says(0, "rtbh to 192.0.2.8/32", "status")
	if !strings.Contains(out, "test") || !strings.Contains(out, "established") {
		s.t.Errorf("status lacks a reason or a session:\n%s", out)
	}
	// The mode of the socket allows all users to connect. The process must still disconnect a client that is neither root nor its own user.
	if err := os.Chmod(s.run, 0o755); err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command("curl", "-sS", "--unix-socket", filepath.Join(s.run, bgp.Socket), "http://bgp/v1/status")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err == nil || strings.Contains(string(out), "sessions") {
		s.t.Errorf("another user gets an answer: %v: %s", err, out)
	}
	for _, body := range []string{`{"announcements": [{"kind": "rtbh"}]}`, `{"bogus": 1}`, `[`, strings.Repeat(" ", 2<<20) + "{}"} {
		c := exec.Command("curl", "-sS", "-X", "PUT", "--unix-socket", filepath.Join(s.run, bgp.Socket), "-d", "@-", "http://bgp/v1/announcements")
		c.Stdin = strings.NewReader(body)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), `"error"`) {
			s.t.Errorf("PUT of %.40q: %v: %s", body, err, out)
		}
	}
}

// testReceived checks that the router's FlowSpec route arrives here.
func testReceived(s *speakerProcess) {
	var routes []bgp.Route
	waitFor(s.t, "the router's FlowSpec route is received", func() bool {
		r, err := bgp.NewClient(s.run).Received(context.Background())
		routes = r.Routes
		return err == nil && len(routes) > 0
	})
	// Length 11; destination 192.0.2.0/24; protocol 17; source port 19.
	want := []byte{11, 1, 24, 192, 0, 2, 3, 0x81, 17, 6, 0x81, 19}
	if r := routes[0]; string(r.NLRI) != string(want) || !r.External || r.AS != 64501 || len(r.Attributes) == 0 {
		s.t.Errorf("received %+v, want NLRI %x", r, want)
	}
}

// testKills kills the process and the daemon. Announcements must return after a restart. No announcement may outlive its end.
func testKills(s *speakerProcess, r *upstreamRouter, daemon *exec.Cmd) {
	for range testutil.Scaled(1, 5) {
		s.kill()
		s.start()
		r.has("192.0.2.8/32", true)
		waitFor(s.t, "the session is back", func() bool { _, code := s.floodwall("status"); return code == 0 })
	}
	r.has("192.0.2.7/32", true)
	// Without the daemon, an announcement must still end.
	s.says(0, "withdrawn", "withdraw", "192.0.2.7", "--now")
	daemon.Process.Kill()
	daemon.Wait()
	s.announcesBriefly(r, "192.0.2.12", "192.0.2.12/32", "--now")
	r.has("192.0.2.12/32", false)
	// Without the process, the router must remove the routes after the graceful restart time. Announcements that ended in the meantime must not
	// return.
	s.says(0, "withdrawn", "withdraw", "2001:db8::7", "--now")
	s.says(0, "until", "announce", "192.0.2.13", "--rtbh", "--for", "2s", "--now")
	s.kill()
	r.has("192.0.2.8/32", false)
	s.start()
	r.has("192.0.2.8/32", true)
	if out := r.table(); strings.Contains(out, "192.0.2.13") || strings.Contains(out, "192.0.2.12") || strings.Contains(out, "192.0.2.7/32") {
		s.t.Errorf("after a restart the router has what has ended:\n%s", out)
	}
	if log := s.log(); !strings.Contains(log, "announced announcement=\"rtbh to 192.0.2.8/32\" owner=") || !strings.Contains(log, "withdrawn announcement=\"rtbh to 192.0.2.12/32\"") {
		s.t.Errorf("the log lacks announcements:\n%s", log)
	}
}

// testWithoutRights checks in /proc that no thread of a process has any rights.
func testWithoutRights(t *testing.T, pid int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Cap") && strings.Trim(strings.TrimSpace(line[7:]), "0") != "" {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}

// TestBGPDropsRights runs the process as root. The process must refuse to run. With --user it must switch to that user irrevocably.
func TestBGPDropsRights(t *testing.T) {
	testutil.RequireRoot(t)
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the user must be able to enter its directories
		t.Fatal(err)
	}
	run, state := filepath.Join(dir, "run"), filepath.Join(dir, "state")
	if out, err := exec.Command("floodwall", "bgp", "run", "--run", run, "--dir", state).CombinedOutput(); exitCode(err) != 1 || !strings.Contains(string(out), "does not run as root") {
		t.Errorf("as root: %v: %s", err, out)
	}
	c := exec.Command("floodwall", "bgp", "run", "--run", run, "--dir", state, "--user", "nobody")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	if err := testutil.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	waitFor(t, "it answers root", func() bool {
		_, err := bgp.NewClient(run).Status(context.Background())
		return err == nil
	})
	testWithoutRights(t, c.Process.Pid)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	if err != nil || !strings.Contains(string(text), "Uid:\t65534\t65534\t65534\t65534") || !strings.Contains(string(text), "NoNewPrivs:\t1") {
		t.Errorf("%v: %s", err, text)
	}
	// If others can write to the directory, another user could replace the socket.
	if err := os.Chmod(run, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := bgp.NewClient(run).Status(context.Background()); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("a directory that all can write to: %v", err)
	}
}
