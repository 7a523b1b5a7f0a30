// SPDX-License-Identifier: Apache-2.0

package main

import (
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

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// strangerTo is the first packet of a connection from a stranger to a TCP port of the host.
func strangerTo(port string) string { return "tcp 198.51.100.9:40000 > 192.0.2.1:" + port + " S" }

// TestOn runs `floodwall on` on several hosts. What a host served before must be served, except what the screen says before the question. Everything
// else must be dropped.
func TestOn(t *testing.T) {
	for _, row := range []struct {
		name   string
		make   func(h *onHost) // makes the host
		args   []string
		screen []string // parts of the text before the first question
		end    []string // parts of the text at the end
		wants  map[string]string
	}{
		{
			name: "web server",
			make: func(h *onHost) {
				h.serve("0.0.0.0:22", "0.0.0.0:80", "[::]:443", "127.0.0.1:3000")
				listenUDP(h.T, "0.0.0.0:5353")
			},
			screen: []string{
				"devices    fw0: packets from outside arrive there, by a default route; target xdp\n", "open       tcp/22 (nginx)\n", "\n           tcp/80 (nginx)\n", "\n           tcp/443 (nginx)\n",
				"closed     udp/5353 (nginx): only hosts on the same link use it\n", "you        203.0.113.5, by SSH to port 22: new connections from there pass\n",
				"protects   tcp/80, tcp/443: SYN cookies", "policy     /etc/floodwall/policy.yaml, a new file",
			},
			end: []string{
				"a new connection from 203.0.113.5 to port 22 passes\n", "confirmed: generation 1 of /etc/floodwall/policy.yaml stays\n", "systemd    loads it at each boot",
				"page       http://127.0.0.1:9810/", "ssh -N -L 9810:/run/floodwall/read.sock root@192.0.2.1\n", "floodwall status ", "floodwall block ", "floodwall off ",
			},
			wants: map[string]string{
				strangerTo("22"): "pass", strangerTo("80"): "pass", strangerTo("443"): "pass", strangerTo("3000"): "drop default", strangerTo("8080"): "drop default",
				"udp 198.51.100.9:40000 > 192.0.2.1:5353": "drop default",
			},
		},
		{
			name: "resolver",
			make: func(h *onHost) {
				h.serve("0.0.0.0:22", "0.0.0.0:53")
				listenUDP(h.T, "0.0.0.0:53")
				listenUDP(h.T, "0.0.0.0:41000") // for its own queries
			},
			screen: []string{"\n           tcp/53 (nginx)\n", "\n           udp/53 (nginx)\n", "closed     udp/41000 (nginx): it looks like a client's socket"},
			wants: map[string]string{
				"udp 198.51.100.9:40000 > 192.0.2.1:53": "pass", strangerTo("53"): "pass", "udp 198.51.100.9:40000 > 192.0.2.1:41000": "drop default",
			},
		},
		{
			name: "database and router",
			make: func(h *onHost) {
				h.serve("0.0.0.0:3306", "0.0.0.0:8080")
				vrrp, err := net.ListenPacket("ip4:112", "0.0.0.0")
				if err != nil {
					h.Fatal(err)
				}
				h.Cleanup(func() { vrrp.Close() })
			},
			screen: []string{
				"tcp/22; nothing listens now at tcp/22\n", "\n           tcp/8080 (nginx)\n", "{name: raw-112, from: ", "closed     tcp/3306 (nginx) listens and is closed, as a database is not meant for the world: ",
			},
			wants: map[string]string{strangerTo("3306"): "drop default", strangerTo("8080"): "pass", "proto=112 192.0.2.9 > 224.0.0.18": "pass"},
		},
		{
			name:   "without systemd",
			make:   func(h *onHost) { h.serve("0.0.0.0:22"); os.Remove(h.script); hide(h.T, "systemctl") },
			screen: []string{"nothing loads it after a reboot, and no daemon runs: this host has no systemd"},
			end:    []string{"left out   there is no systemd on this host", "apply --boot-restore", "run `floodwall daemon`", "floodwall off "},
			wants:  map[string]string{strangerTo("22"): "pass", strangerTo("80"): "drop default"},
		},
		{
			name: "policy that exists",
			make: func(h *onHost) {
				h.serve("0.0.0.0:22", "0.0.0.0:8080", "0.0.0.0:5432")
				writeFile(h.T, operate.UsualPolicy, standingPolicy)
			},
			screen: []string{
				"devices    fw0: the policy names it", "open       tcp/22 (nginx) for 203.0.113.0/24 alone\n", "\n           tcp/25; nothing listens now at tcp/25\n",
				"closed     tcp/8080 (nginx) listens and is closed: floodwall allow tcp/8080\n", "tcp/5432 (nginx) listens and is closed, as a database",
				"policy     /etc/floodwall/policy.yaml, which exists and stays as it is",
			},
			wants: map[string]string{strangerTo("22"): "drop", "tcp 203.0.113.9:4000 > 192.0.2.1:22 S": "pass", strangerTo("8080"): "drop default", strangerTo("25"): "pass"},
		},
		{
			name: "rules beside XDP",
			make: func(h *onHost) {
				h.serve("0.0.0.0:22")
				writeFile(h.T, operate.UsualPolicy, strings.Replace(standingPolicy, "rules: [", "rules: [{name: ident, port: tcp/113, then: reject}, ", 1))
			},
			end:   []string{"a new connection from 203.0.113.5 to port 22 passes\n"},
			wants: map[string]string{strangerTo("113"): "reject ident", strangerTo("25"): "pass", strangerTo("80"): "drop default"},
		},
		{
			name: "two devices",
			make: func(h *onHost) {
				h.serve("0.0.0.0:22")
				testutil.Veth(h.T, "fw2", "fw3", "198.51.100.1/24")
			},
			args:   []string{"fw0", "fw2"},
			screen: []string{"devices    fw0: you named it", "\n           fw2: you named it"},
			end:    []string{"applied generation 1 on fw0 (xdp, native), fw2 (xdp, native): "},
			wants:  map[string]string{strangerTo("22"): "pass", strangerTo("80"): "drop default"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !inside(t) {
				return
			}
			h := newOnHost(t)
			row.make(h)
			before, _ := os.ReadFile(operate.UsualPolicy)
			out := h.done(row.args...)
			screen, _, _ := strings.Cut(out, firstQuestion)
			for _, part := range row.screen {
				if !strings.Contains(screen, part) {
					t.Errorf("the screen has no %q:\n%s", part, screen)
				}
			}
			for _, part := range row.end {
				if !strings.Contains(out, part) {
					t.Errorf("the output has no %q:\n%s", part, out)
				}
			}
			if n := strings.Count(screen, "\n"); n > 24 {
				t.Errorf("the screen has %d lines:\n%s", n, screen)
			}
			h.wants("after on", row.wants)
			if after, err := os.ReadFile(operate.UsualPolicy); err != nil || before != nil && string(after) != string(before) {
				t.Errorf("the policy that existed has changed: %v", err)
			}
		})
	}
}

// TestOnConnections connects from another host to the ports of a server, before and after `floodwall on`, and after `floodwall off`. Ports that the
// screen calls closed must be closed, and all others must answer as before.
func TestOnConnections(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22", "0.0.0.0:80", "[::]:443", "127.0.0.1:3000", "0.0.0.0:5432")
	client := newShell(t, t.TempDir(), "unshare", "-n", "bash", "--norc")
	sh(t, "ip link set fw1 netns "+strings.TrimSpace(client.must(t, "echo $$"))+"; ip route replace default via 192.0.2.254")
	client.must(t, "ip link set fw1 up; ip addr add 192.0.2.254/24 dev fw1; ip addr add 203.0.113.5/32 dev fw1; ip route add 192.0.2.1 dev fw1 src 203.0.113.5")
	open := func() (list string) {
		for _, port := range []string{"22", "80", "443", "3000", "5432"} {
			if _, status := client.run(t, "timeout 2 bash -c '</dev/tcp/192.0.2.1/"+port+"' 2>/dev/null"); status == 0 {
				list += port + " "
			}
		}
		return list
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"before", func() {}, "22 80 443 5432 "},
		{"after on", func() {
			if out := h.done(); !strings.Contains(out, "closed     tcp/5432 (nginx) listens and is closed") || strings.Count(out, "and is closed") != 1 {
				t.Errorf("on:\n%s", out)
			}
		}, "22 80 443 "},
		{"after off", func() { mustFloodwall(t, "off") }, "22 80 443 5432 "},
	} {
		step.do()
		if got := open(); got != step.want {
			t.Errorf("%s, the ports %sanswer, want %s", step.what, got, step.want)
		}
	}
}

// standingPolicy is a policy that an operator wrote.
const standingPolicy = `devices: [fw0]
default: drop
checks: strict
sets: {bans: {dynamic: true, max: 100, timeout: 1h}}
rules: [{name: banned, from: $bans, then: drop}]
services:
  - {name: ssh, port: tcp/22, from: 203.0.113.0/24}
  - {name: mail, port: tcp/25}
`

// TestOnEnds ends `floodwall on` in each way in which it does not come to its end, on a host where nothing is filtered and on one with a policy. The
// previous state must be in force.
func TestOnEnds(t *testing.T) {
	signal := func(s syscall.Signal) func(*onRun) {
		return func(r *onRun) { r.cmd.Process.Signal(s) }
	}
	ways := []struct {
		name    string
		trial   bool // in the trial, not in the question
		end     func(*onRun)
		status  int
		says    string
		confirm string
		atOnce  bool // it goes back before the deadline
	}{
		{"no", false, func(r *onRun) { r.enters("no") }, 1, "nothing is changed", "", true},
		{"Ctrl-C in the question", false, signal(syscall.SIGINT), cli.ExitInterrupted, "interrupted", "", true},
		{"lost session in the question", false, signal(syscall.SIGHUP), cli.ExitInterrupted, "", "", true},
		{"closed input in the question", false, func(r *onRun) { r.in.Close() }, 1, "nothing is changed", "", true},
		{"no Enter", true, func(*onRun) {}, 1, "Enter did not come in time", "8s", false},
		{"Ctrl-C in the trial", true, signal(syscall.SIGINT), cli.ExitInterrupted, "interrupted", "5m", true},
		{"lost session in the trial", true, signal(syscall.SIGHUP), cli.ExitInterrupted, "", "5m", true},
		{"closed input in the trial", true, func(r *onRun) { r.in.Close() }, 1, "has ended without Enter", "5m", true},
		{"killed in the trial", true, signal(syscall.SIGKILL), killed, "", "8s", false},
		{"banned in the trial", true, func(r *onRun) {
			mustFloodwall(r.T, "block", "203.0.113.5", "--force")
			r.enters("")
		}, 1, `rule "banned" drops it`, "5m", true},
	}
	for _, previous := range []string{"", "devices: [fw0]\ndefault: pass\nrules: [{name: before, port: tcp/25, then: drop}]\n"} {
		t.Run(map[bool]string{true: "nothing filtered", false: "a policy"}[previous == ""], func(t *testing.T) {
			if !inside(t) {
				return
			}
			h := newOnHost(t)
			h.serve("0.0.0.0:22")
			file := t.TempDir() + "/previous.yaml"
			if previous != "" {
				writeFile(t, file, previous)
				mustFloodwall(t, "apply", file)
			}
			asBefore := func() bool {
				got := verdict(t, strangerTo("25"))
				return got == "drop before" || previous == "" && strings.Contains(got, "nothing is loaded")
			}
			if !asBefore() {
				t.Fatalf("before: %s", verdict(t, strangerTo("25")))
			}
			for _, w := range ways {
				args := []string{}
				if w.confirm != "" {
					args = append(args, "--confirm", w.confirm)
				}
				r := h.start(args...)
				r.says(firstQuestion)
				if w.trial {
					r.enters("y")
					r.says(secondQuestion)
					h.wants(w.name, map[string]string{strangerTo("25"): "drop default"})
				}
				w.end(r)
				r.ends(w.status)
				if w.says != "" && !strings.Contains(r.said.String(), w.says) {
					t.Errorf("%s: on does not say %q:\n%s", w.name, w.says, r.said)
				}
				if w.atOnce && !asBefore() || !testutil.Eventually(time.Minute, asBefore) {
					t.Errorf("%s: the state is not the previous one: %s\n%s", w.name, verdict(t, strangerTo("25")), r.said)
				}
				if w.status == killed { // nothing is left that could remove the file
					if err := os.RemoveAll(filepath.Dir(operate.UsualPolicy)); err != nil {
						t.Error(err)
					}
				} else if _, err := os.Stat(filepath.Dir(operate.UsualPolicy)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: the directory of the policy: %v", w.name, err)
				}
				if !w.trial && previous == "" && testutil.LeftoverPins() != nil {
					t.Errorf("%s: left behind: %v", w.name, testutil.LeftoverPins())
				}
			}
			if asked := h.systemctl(); strings.Contains(asked, "enable") || strings.Contains(asked, "start") {
				t.Errorf("units were enabled:\n%s", asked)
			}
		})
	}
}

// TestOnLockout runs on with a policy that would cut the operator's session. It must be refused before the question, also with --yes.
func TestOnLockout(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	writeFile(t, operate.UsualPolicy, strings.Replace(standingPolicy, "203.0.113.0/24", "198.51.100.0/24", 1))
	for _, args := range [][]string{nil, {"--yes"}, {"--dry-run"}} {
		r := h.start(args...)
		r.ends(1)
		out := r.said.String()
		if !strings.Contains(out, "error: the policy would drop this session, from 203.0.113.5:50000") || strings.Contains(out, "--force") || strings.Contains(out, firstQuestion) {
			t.Errorf("on %v:\n%s", args, out)
		}
	}
	h.nothingLeft()
}

// TestOnDryRun must leave nothing, and say what on would do.
func TestOnDryRun(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	r := h.start("--dry-run")
	r.ends(0)
	if out := r.said.String(); !strings.Contains(out, "\nopen       tcp/22 (nginx)\n") || !strings.HasSuffix(out, "\ndry run: nothing is changed\n") {
		t.Errorf("on --dry-run:\n%s", out)
	}
	if _, err := os.Stat("/etc/floodwall"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/etc/floodwall: %v", err)
	}
	h.nothingLeft()
}

// TestOnSays checks what on says on hosts that differ from a usual server.
func TestOnSays(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	dir := t.TempDir()
	says := func(args []string, status int, with, without string) {
		t.Helper()
		r := h.start(args...)
		r.ends(status)
		if out := r.said.String(); !strings.Contains(out, with) || without != "" && strings.Contains(out, without) {
			t.Errorf("on %v does not say %q, or says %q:\n%s", args, with, without, out)
		}
	}
	says([]string{"--dry-run", "--policy", ""}, cli.ExitUsage, "names no file", "")
	sh(t, "ln -s /nowhere/policy.yaml "+dir+"/link.yaml")
	says([]string{"--dry-run", "--policy", dir + "/link.yaml"}, 1, "a symbolic link to a file that does not exist", "")
	writeFile(t, dir+"/before.yaml", standingPolicy)
	mustFloodwall(t, "apply", dir+"/before.yaml", "--confirm", "5m")
	says([]string{"--dry-run"}, 0, "which is on trial itself", "which returns unless you confirm")
	mustFloodwall(t, "unload")
	t.Setenv("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
	sh(t, "rm -r /run/systemd/system")
	t.Chdir(dir)
	says([]string{"--yes", "--policy", "own.yaml"}, 0, "you        127.0.0.1, by a tunnel or a proxy", "a new connection from")
	says([]string{"--yes", "--policy", "own.yaml"}, 0, "systemd    does not run here", "page ")
	t.Chdir("/")
	if out := mustFloodwall(t, "off"); !strings.Contains(out, "brings it back\n") || !strings.Contains(out, "--policy "+dir+"/own.yaml") {
		t.Errorf("off:\n%s", out)
	}
}

// TestOnWithoutSession runs on without an SSH session: with --yes, as the first boot of a cloud host does, and as at a console.
func TestOnWithoutSession(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:80")
	t.Setenv("SSH_CONNECTION", "")
	r := h.start("--yes")
	r.in.Close()
	r.ends(0)
	if out := r.said.String(); !strings.Contains(out, "you        no SSH session is known") || !strings.Contains(out, "confirmed: generation 1") {
		t.Errorf("on --yes:\n%s", out)
	}
	wants := map[string]string{strangerTo("80"): "pass", strangerTo("22"): "pass", strangerTo("23"): "drop default"}
	h.wants("after on", wants)
	mustFloodwall(t, "off")
	if out := h.done(); !strings.Contains(out, "you are at a console") || !strings.Contains(out, "confirmed: ") { // at a console
		t.Errorf("on:\n%s", out)
	}
	h.wants("after on at a console", wants)
}

// TestAdmits asks on each target whether a new connection of a session passes, before and after a ban of its address.
func TestAdmits(t *testing.T) {
	if !inside(t) {
		return
	}
	file := t.TempDir() + "/policy.yaml"
	writeFile(t, file, standingPolicy)
	in := control.Instance{Dir: datapath.DefaultDir}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", file, "--target", target)
		if err := in.Admits(t.Context(), facts.Sessions(), []string{"fw0"}); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		mustFloodwall(t, "block", "203.0.113.5", "--force")
		var lockout *control.LockoutError
		if err := in.Admits(t.Context(), facts.Sessions(), []string{"fw0"}); !errors.As(err, &lockout) || lockout.Reason != `rule "banned"` {
			t.Errorf("%s, after a ban: %v", target, err)
		}
		mustFloodwall(t, "unload")
	}
}

// TestOnTypedAhead types the answers to both questions at once at a terminal. The second one was typed before the trial, so it must not confirm it.
func TestOnTypedAhead(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	terminal, other := openTerminal(t)
	cmd := exec.Command("floodwall", "on", "--confirm", "4s")
	said := new(lines)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, said, said
	if err := testutil.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.WriteString("y\n\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); exitCode(err) != 1 || !strings.Contains(said.String(), "on trial: ") || !strings.Contains(said.String(), "Enter did not come in time") {
		t.Errorf("on: %v\n%s", err, said)
	}
	if got := verdict(t, strangerTo("80")); !strings.Contains(got, "nothing is loaded") {
		t.Errorf("after the trial: %s", got)
	}
}

// openTerminal makes a terminal: see pty(7).
func openTerminal(t *testing.T) (here, there *os.File) {
	t.Helper()
	here, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	if err := unix.IoctlSetPointerInt(int(here.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(here.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	there, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return here, there
}
