// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// victimVar is the environment variable that makes the test binary a process that loads generation 2 over 1. Its value is `BACKEND SECONDS`.
const victimVar = "FLOODWALL_TEST_VICTIM"

func TestMain(m *testing.M) {
	if order := os.Getenv(victimVar); order != "" {
		victim(order)
		return
	}
	os.Exit(m.Run())
}

// victim prints a line when it starts and when it has finished, and then waits to be killed.
func victim(order string) {
	var backend string
	var seconds int
	fmt.Sscan(order, &backend, &seconds)
	var g generations
	if n, err := FindNft(context.Background()); err == nil && backend == "nft" {
		g = nftGenerations{n}
	} else if x, err := FindIptables(); err == nil {
		g = iptablesGenerations{x}
	}
	fmt.Println("begin")
	fmt.Println("end", g.load(context.Background(), 2, 1, time.Duration(seconds)*time.Second))
	time.Sleep(time.Minute)
}

// kill starts a victim, and kills it after the given time. If after is 0, it kills the victim when it has finished. kill returns how long the victim
// ran, when the tools that it had started have ended, too. They are not killed, and on a busy machine they may commit late.
func (b *bench) kill(backend string, trial int, after time.Duration) time.Duration {
	b.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", victimVar, backend, trial))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the tools get its group
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	start := time.Now()
	if after > 0 {
		time.Sleep(after)
	} else if lines.Scan(); lines.Text() != "end <nil>" {
		b.Errorf("the victim: %s", lines.Text())
	}
	took := time.Since(start)
	b.must(cmd.Process.Kill())
	cmd.Wait()
	if !testutil.Eventually(time.Minute, func() bool { return !runs(cmd.Process.Pid) }) {
		b.Fatal("a tool that the victim had started does not end")
	}
	return took
}

// runs reports whether a process of a group runs.
func runs(group int) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		var state string
		var parent, of int
		fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent, &of)
		if of == group && state != "Z" {
			return true
		}
	}
	return false
}

// kind returns the backend for a victim's order. The victim finds the tools by the path.
func (b *bench) kind() string {
	if _, ok := b.generations.(nftGenerations); ok {
		return "nft"
	}
	return "iptables"
}

// TestKilledOnTrial kills the process when the trial has started. The trial must still end on time.
func TestKilledOnTrial(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		before := b.ruleset()
		start := time.Now()
		b.kill(b.kind(), 3, 0)
		who := b.decides()
		if took := time.Since(start); took < 3*time.Second && who != "even" { // later the trial may be over, on a busy machine
			b.Errorf("killed: %s decides %v after the start of a trial of 3 s, want even", who, took)
		}
		for ; who != "odd" && time.Since(start) < time.Minute; who = b.decides() {
			time.Sleep(100 * time.Millisecond)
		}
		b.want("expired", "odd")
		b.clean(before)
	})
}

// clean removes the remains of the victim, and checks that only the generation that decides is left.
func (b *bench) clean(before []string) {
	b.Helper()
	keep, who := b.name(1), "odd"
	_, state, err := b.Trial(b.Context(), b.name(2))
	b.must(err)
	if state == Settled {
		keep, who = b.name(2), "even"
	}
	_, err = b.Clean(b.Context(), b.prefix(), keep)
	b.must(err)
	b.want("cleaned", who)
	if found, err := b.Leftovers(b.Context(), b.prefix(), keep); err != nil || found != nil {
		b.Errorf("leftovers %v, %v", found, err)
	}
	if state == Settled {
		b.must(b.load(b.Context(), 1, 2, 0))
	}
	if diff := cmp.Diff(before, b.ruleset()); diff != "" {
		b.Errorf("the kernel is not as before (-want +got):\n%s", diff)
	}
}

// TestKilled kills the process at random times. Afterwards one generation must decide, or both for some time.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		r := testutil.Random(t)
		b.must(b.load(t.Context(), 1, 0, 0))
		before := b.ruleset()
		whole := b.kill(b.kind(), 0, 0)
		b.clean(before)
		seen := map[string]int{}
		for range testutil.Scaled(4, 100) {
			b.kill(b.kind(), 0, time.Duration(r.Int64N(int64(whole)*11/10)+1))
			who := b.decides()
			seen[who]++
			if who != "odd" && who != "even" && who != "both" {
				t.Errorf("killed: %s decides", who)
			}
			b.clean(before)
		}
		t.Logf("seen to decide: %v", seen)
	})
}
