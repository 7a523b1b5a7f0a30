// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// These tests run the command in ways that a script cannot: several times at once, killed, or with slow input.

// drops writes a policy that drops UDP to one port and has a dynamic set, and returns its path.
func drops(t *testing.T, port int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), fmt.Sprintf("port%d.yaml", port))
	text := fmt.Sprintf(`devices: [fw0]
default: pass
checks: off
sets:
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: listed, from: $bans, then: drop}
  - {name: port%d, proto: udp, port: %d, then: drop}
`, port, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// floodwall runs the command, and returns its output on standard output and standard error.
func floodwall(args ...string) (string, error) {
	out, err := exec.Command("floodwall", args...).CombinedOutput()
	return string(out), err
}

// mustFloodwall runs a command that must succeed, and returns its output.
func mustFloodwall(t *testing.T, args ...string) string {
	t.Helper()
	out, err := floodwall(args...)
	if err != nil {
		t.Fatalf("floodwall %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// inside prepares a test in namespaces of its own. It returns false outside of these namespaces. At its end, the test fails if anything is left.
func inside(t *testing.T) bool {
	t.Helper()
	if !testutil.Inside(t) {
		return false
	}
	before := testutil.Now()
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	t.Setenv("SSH_CONNECTION", "203.0.113.5 50000 192.0.2.1 22")
	t.Cleanup(func() {
		out, err := floodwall("unload")
		if found := testutil.Leftovers(before); found != nil {
			t.Errorf("left behind by unload, which said %q (%v):\n%s", out, err, strings.Join(found, "\n"))
		}
	})
	return true
}

// TestAppliersAtOnce starts several applies at the same time. They must run one after the other. At the end, the last generation must run completely.
func TestAppliersAtOnce(t *testing.T) {
	if !inside(t) {
		return
	}
	const n = 4
	files := []string{drops(t, 1000), drops(t, 2000)}
	results := make(chan string, n)
	for i := range n {
		go func() {
			out, err := floodwall("apply", files[i%2])
			if err != nil {
				out += err.Error()
			}
			results <- out
		}()
	}
	generations := map[string]bool{}
	for range n {
		out := <-results
		_, number, applied := strings.Cut(out, "applied generation ")
		if !applied {
			t.Errorf("apply: %s", out)
			continue
		}
		generations[strings.Fields(number)[0]] = true
	}
	if len(generations) != n {
		t.Errorf("%d applies made the generations %v", n, generations)
	}
	if out := mustFloodwall(t, "status"); !strings.Contains(out, fmt.Sprintf("generation %d,", n)) {
		t.Errorf("status after %d applies:\n%s", n, out)
	}
}

// TestStreamThatNeverEnds writes lines to `block -`. Each line must take effect soon, while the stream goes on. Between lines, other commands must
// work. An interrupt must end the command. Entries that were blocked before the interrupt must stay.
func TestStreamThatNeverEnds(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := drops(t, 1000)
	mustFloodwall(t, "apply", policy)
	cmd := exec.Command("floodwall", "block", "-", "--why", "stream")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		address := fmt.Sprintf("198.51.100.%d", i+1)
		if _, err := io.WriteString(in, address+"\n"); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the ban of "+address, func() bool { return verdict(t, "tcp "+address+":1 > 192.0.2.1:80") == "drop listed" })
		mustFloodwall(t, "apply", policy) // the stream does not keep the lock, and bans live on
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitInterrupted {
		t.Errorf("after an interrupt: %v, want exit status %d", err, cli.ExitInterrupted)
	}
	if out := mustFloodwall(t, "blocked"); strings.Count(out, "stream") != 5 {
		t.Errorf("blocked, of 5 lines:\n%s", out)
	}
}

// TestStreamSparesWhoComes writes to `block -` while the policy and the host change. Addresses that are added to the allowlist after the command's
// start must not be banned.
func TestStreamSparesWhoComes(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, fail2banPolicy)
	mustFloodwall(t, "apply", policy)
	cmd := exec.Command("floodwall", "block", "-", "--origin", "fail2ban")
	said := new(lines)
	cmd.Stdout, cmd.Stderr = said, said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "198.51.100.1\n")
	waitFor(t, "the first ban", func() bool { return strings.Contains(mustFloodwall(t, "blocked"), "198.51.100.1 ") })
	writeFile(t, policy, strings.Replace(fail2banPolicy, "never: [", "never: [198.51.100.2, ", 1))
	mustFloodwall(t, "apply", policy)
	sh(t, "ip addr add 198.51.100.3/32 dev fw0")
	time.Sleep(allowlistAge + 100*time.Millisecond)
	io.WriteString(in, "198.51.100.2\n198.51.100.3\n198.51.100.4\n")
	in.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("the stream has no refusal")
	}
	for _, want := range []string{"line 2: 198.51.100.2 has addresses that are never banned", "line 3: 198.51.100.3 has in it 198.51.100.3, an address of this host", "blocked 2 entries"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the stream does not say %q:\n%s", want, said)
		}
	}
}

// waitFor waits until a condition holds. Its time limit allows for a busy machine, and for clusters, which first elect leaders.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	if !testutil.Eventually(3*time.Minute, is) {
		t.Fatalf("waiting for %s", what)
	}
}

// verdict returns the verdict of the loaded policy on a packet and the reason, like `explain --live`. If no policy is loaded, it returns the error.
// It starts no process, because it is called often.
func verdict(t *testing.T, line string) string {
	t.Helper()
	spec, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	x, err := control.Instance{Dir: datapath.DefaultDir}.Explain(t.Context(), spec)
	if err != nil {
		return err.Error()
	}
	return x.Verdict + " " + x.Reason
}

// TestKilledApply kills the process that applies a policy, at random points. After each kill, either the old or the new policy must decide, and the
// next apply must work.
func TestKilledApply(t *testing.T) { endApplies(t, syscall.SIGKILL, testutil.Scaled(4, 200)) }

// TestInterruptedApply interrupts the process that applies a policy, at random points. The exit status must tell which policy decides.
func TestInterruptedApply(t *testing.T) { endApplies(t, syscall.SIGINT, testutil.Scaled(3, 30)) }

// endApplies starts the given number of applies, and ends each by a signal at a random point.
func endApplies(t *testing.T, signal syscall.Signal, times int) {
	if !inside(t) {
		return
	}
	seed := testutil.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	files := [2]string{drops(t, 1000), drops(t, 2000)}
	start := time.Now()
	mustFloodwall(t, "apply", files[0])
	takes := time.Since(start)
	now, n, changed := 0, 0, 0
	for ; n < times; n++ {
		next := 1 - now
		status := endApply(t, files[next], signal, point(random, takes))
		runs := decides(t)
		switch {
		case runs < 0:
			t.Fatalf("after %d applies neither policy decides (seed %d)", n, seed)
		case signal == syscall.SIGINT && status != 0 && status != cli.ExitInterrupted && status != killed:
			t.Fatalf("an interrupted apply ends with status %d", status)
		case signal == syscall.SIGINT && (status == 0) != (runs == next):
			t.Fatalf("an interrupted apply ends with status %d, and policy %d decides, not %d", status, runs, next)
		}
		if runs == next {
			changed++
		}
		began := time.Now()
		mustFloodwall(t, "apply", files[next])
		takes = (3*takes + time.Since(began)) / 4
		if now = decides(t); now != next {
			t.Fatalf("after the next apply policy %d decides, not %d (seed %d)", now, next, seed)
		}
	}
	t.Logf("%d applies ended by %v, %d of them too late to stop the change", n, signal, changed)
}

// point returns the time after which to end an apply that takes this long. Half of the times are random. The other half are near the end, when the
// policy changes.
func point(random *rand.Rand, takes time.Duration) time.Duration {
	if random.IntN(2) == 0 {
		return time.Duration(random.Int64N(int64(takes)))
	}
	return takes*8/10 + time.Duration(random.Int64N(int64(takes)/4))
}

// killed is the exit status of a process that a signal killed. An interrupt also kills the process if it arrives before the process handles signals.
const killed = -1

// endApply starts an apply and ends it by a signal. It returns the exit status.
func endApply(t *testing.T, file string, signal syscall.Signal, after time.Duration) int {
	t.Helper()
	cmd := exec.Command("floodwall", "apply", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	// The apply may already have ended. That is one of the tested points.
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// decides returns the index of the policy that decides. It returns -1 when neither or both do.
func decides(t *testing.T) int {
	t.Helper()
	first, second := verdict(t, "udp 203.0.113.9:5 > 192.0.2.1:1000"), verdict(t, "udp 203.0.113.9:5 > 192.0.2.1:2000")
	switch {
	case first == "drop port1000" && second == "pass default":
		return 0
	case first == "pass default" && second == "drop port2000":
		return 1
	}
	t.Logf("to port 1000: %s; to port 2000: %s", first, second)
	return -1
}

// TestKilledFirstApply kills applies on a device that has no policy yet, and unloads. Nothing may be left.
func TestKilledFirstApply(t *testing.T) {
	if !inside(t) {
		return
	}
	random := rand.New(rand.NewPCG(testutil.Seed(t), 1))
	file := drops(t, 1000)
	start := time.Now()
	mustFloodwall(t, "apply", file)
	takes := time.Since(start)
	for range testutil.Scaled(3, 20) {
		mustFloodwall(t, "unload")
		endApply(t, file, unix.SIGKILL, point(random, takes))
		if out, err := floodwall("unload"); err != nil && !strings.Contains(out, "nothing is loaded") {
			t.Fatalf("unload: %v\n%s", err, out)
		}
		if _, err := os.Stat(datapath.DefaultDir); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the state directory after unload: %v", err)
		}
		mustFloodwall(t, "apply", file)
	}
}
