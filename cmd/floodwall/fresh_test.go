// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// mostFresh is the longest time from the copied package to the page. A person waits for at most a minute; a machine that runs other tests is slower.
const mostFresh = 5 * time.Minute

// TestFresh goes the way of a new user on a fresh Debian 12 and 13 with systemd, SSH and nginx. It types two commands in a terminal of an SSH session:
// one installs the copied package, and the other is `floodwall on`. Then the host is reset during a trial. The short form goes the way once, on Debian 12. The
// long form goes it five times on each.
func TestFresh(t *testing.T) {
	packages := packagesDir(t)
	releases := []string{"bookworm"}
	if testutil.Long() {
		releases = append(releases, "trixie")
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			variable := "FLOODWALL_TEST_" + strings.ToUpper(release)
			if os.Getenv(variable) == "" {
				os.Setenv(variable, testutil.Debian(t, "host", release))
			}
			if !inside(t) {
				return
			}
			sh(t, "ip link set fw0 name eth0; ip link set eth0 up; ip link set lo up; ip route add default via 192.0.2.254")
			client := testutil.NewElsewhere(t)
			client.Take(t, "fw1")
			client.Do(func() {
				script(t, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.254/24 dev fw1; ip addr add 203.0.113.5/32 dev fw1; ip route replace 192.0.2.1 dev fw1 src 203.0.113.5")
			})
			testutil.WaitUp(t, "eth0")
			database, err := net.Listen("tcp", ":5432")
			if err != nil {
				t.Fatal(err)
			}
			defer database.Close()
			rounds := 1
			if testutil.Long() {
				rounds = 5
			}
			var took []float64 // seconds
			for n := range rounds {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					f := newFresh(t, packages, os.Getenv(variable), client)
					took = append(took, f.first().Seconds())
					if n == rounds-1 {
						f.resets()
					}
				})
			}
			slices.Sort(took)
			if took != nil {
				t.Logf("from the package to the page, median of %d: %.1f s of %.1f", len(took), took[len(took)/2], took)
			}
		})
	}
}

// freshHost is a fresh Debian host. client is another host, at 203.0.113.5.
type freshHost struct {
	*debian
	client *testutil.Elsewhere
	key    string // the file of the user's SSH key
}

func newFresh(t *testing.T, packages, lower string, client *testutil.Elsewhere) *freshHost {
	t.Helper()
	testutil.RequireTool(t, "dropbear")
	f := &freshHost{newDebian(t, lower), client, filepath.Join(t.TempDir(), "user")}
	f.script("mkdir -p -m 700 DIR/root/root/.ssh; dropbearkey -t ed25519 -f " + f.key + " 2>/dev/null | grep ^ssh- >DIR/root/root/.ssh/authorized_keys; " +
		"chmod 755 " + filepath.Dir(f.key) + " " + filepath.Dir(filepath.Dir(f.key)) + "; cp " + packages + "/present.deb DIR/root/root/floodwall_0.2.0-1_amd64.deb")
	f.must("systemctl enable --now ssh nginx")
	return f
}

// ssh is a command of the client that logs in.
func (f *freshHost) ssh(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=" + f.client.Path(), "dbclient", "-y", "-y", "-i", f.key}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// answers reports whether a port of the host accepts a connection of the client.
func (f *freshHost) answers(port string) (is bool) {
	f.client.Do(func() { is = asksPort("tcp", "192.0.2.1:"+port) })
	return is
}

// first installs the package and runs `floodwall on`, and returns how long it took until the page was there.
func (f *freshHost) first() time.Duration {
	f.Helper()
	s := f.session()
	began := time.Now()
	s.types("apt install ./floodwall_*.deb; echo status $?")
	s.says(`status \d`)
	installed := time.Since(began)
	s.types("floodwall on; echo status $?")
	s.says(regexp.QuoteMeta(firstQuestion))
	s.types("y")
	s.says(regexp.QuoteMeta(secondQuestion))
	s.types("")
	s.says(`status \d[\s\S]*status \d`)
	f.page()
	took := time.Since(began)
	f.Logf("the package %.1f s, `floodwall on` and the page %.1f s:\n%s", installed.Seconds(), (took - installed).Seconds(), s.said)
	if took > mostFresh {
		f.Errorf("it takes %s", took)
	}
	screen := strings.ReplaceAll(s.said.String(), "\r", "")
	if failed := regexp.MustCompile(`status [1-9]`).FindString(screen); failed != "" {
		f.Errorf("a command ended with %s", failed)
	}
	for _, part := range []string{
		"devices    eth0: packets from outside arrive there", "tcp/22 (sshd)\n", "tcp/80 (nginx)\n", "closed     tcp/5432 listens and is closed, as a database", "you        203.0.113.5, by SSH to port 22: new connections from there pass\n",
		"a new connection from 203.0.113.5 to port 22 passes\n", "confirmed: generation 1 of /etc/floodwall/policy.yaml stays\n", "page       http://127.0.0.1:9810/",
	} {
		if !strings.Contains(screen, part) {
			f.Errorf("the screen has no %q", part)
		}
	}
	f.says("systemctl is-enabled floodwall-boot floodwall; systemctl is-active floodwall", "enabled\nenabled\nactive")
	if !f.answers("22") || !f.answers("80") || f.answers("5432") {
		f.Error("SSH or nginx does not answer, or the database does")
	}
	if out, err := f.ssh("root@192.0.2.1", "true").CombinedOutput(); err != nil {
		f.Errorf("a new login: %v\n%s", err, out)
	}
	return took
}

// page waits until the daemon reports that the policy is in force, and gets its page.
func (f *freshHost) page() {
	f.Helper()
	f.serves()
	a, err := get(fmt.Sprintf("/proc/%d/root%s", f.systemd, readSocket), "/")
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "<html") {
		f.Errorf("the page: %v\n%.300s", err, a.body)
	}
}

// resets resets the host during a trial, first with an earlier policy, and then with none. After the boot, that state must be in force again, and new
// logins must work.
func (f *freshHost) resets() {
	f.Helper()
	for _, before := range []struct {
		what, make, units, status string
		open                      bool // all ports are open
	}{
		{"the earlier policy", "sed -i 's/^default: drop/default: pass/' /etc/floodwall/policy.yaml", "active\nactive", "/etc/floodwall/policy.yaml, generation 1,", false},
		{"nothing", "floodwall off; rm -r /etc/floodwall", "inactive\ninactive", "error: nothing is loaded", true},
	} {
		f.must(before.make)
		s := f.session()
		s.types("floodwall on --confirm 1h")
		s.says(regexp.QuoteMeta(firstQuestion))
		s.types("y")
		s.says(regexp.QuoteMeta(secondQuestion))
		f.kill()
		sh(f.T, "nft flush ruleset")
		waitFor(f.T, "devices without programs of the system that ended", func() bool {
			links, err := exec.Command("ip", "link", "show").CombinedOutput()
			return err == nil && !strings.Contains(string(links), "prog/xdp")
		})
		f.boot()
		f.says("systemctl is-active floodwall-boot floodwall", before.units)
		if out, _ := f.run("floodwall status 2>&1"); !strings.Contains(out, before.status) || strings.Contains(out, "trial") {
			f.Errorf("%s: after a reset in the trial:\n%s", before.what, out)
		}
		if out, err := f.ssh("root@192.0.2.1", "true").CombinedOutput(); err != nil {
			f.Errorf("%s: a login after a reset in the trial: %v\n%s", before.what, err, out)
		}
		if open := f.answers("5432"); open != before.open {
			f.Errorf("%s: after a reset in the trial, the database answers: %v", before.what, open)
		}
	}
}

// freshSession is an SSH session of the client with a terminal.
type freshSession struct {
	*freshHost
	terminal *os.File
	said     *lines
}

func (f *freshHost) session() *freshSession {
	f.Helper()
	here, there := openTerminal(f.T)
	cmd := f.ssh("root@192.0.2.1")
	cmd.Env = append(os.Environ(), "TERM=dumb")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = there, there, there
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	s := &freshSession{f, here, new(lines)}
	go io.Copy(s.said, here)
	s.says(`[#$] $`) // the prompt
	return s
}

// types types a line.
func (s *freshSession) types(line string) {
	s.Helper()
	if _, err := s.terminal.WriteString(line + "\r"); err != nil {
		s.Fatal(err)
	}
}

// says waits until the text on the terminal matches an expression.
func (s *freshSession) says(expression string) {
	s.Helper()
	e := regexp.MustCompile(expression)
	if !testutil.Eventually(10*time.Minute, func() bool { return e.MatchString(s.said.String()) }) {
		s.Fatalf("the terminal does not show %q:\n%s", expression, s.said)
	}
}
