// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/test/testutil"
)

// saboteur is a script that runs in place of a tool. It counts the calls that change the kernel, and fails at one of them.
const saboteur = `#!/bin/sh
case "$0 $*" in *restore*|*"-f -"*)
	n=$(($(cat DIR/count) + 1))
	echo $n >DIR/count
	if [ $n = $(cat DIR/fail) ]; then
		echo "sabotage" >&2
		exit 1
	fi
esac
exec REAL "$@"
`

// sabotage installs a saboteur in front of each tool. fail makes the nth call fail. calls returns the number of calls so far.
func (h *host) sabotage() (fail func(n int), calls func() int) {
	h.Helper()
	dir := h.TempDir()
	for _, tool := range []string{"nft", "ipset", "iptables-restore", "ip6tables-restore"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			h.Fatal(err)
		}
		script := strings.NewReplacer("DIR", dir, "REAL", path).Replace(saboteur)
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755); err != nil {
			h.Fatal(err)
		}
	}
	h.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	fail = func(n int) {
		for name, text := range map[string]string{"count": "0", "fail": strconv.Itoa(n)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				h.Fatal(err)
			}
		}
	}
	return fail, func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "count"))
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			h.Fatal(err)
		}
		return n
	}
}

// TestFaults makes single calls of a tool fail during an apply; in the long form it tests each call. Either the apply must return an error and change
// nothing, or it must be complete.
func TestFaults(t *testing.T) {
	pairs := [][2]int{{1, 1}, {3, 3}, {0, 2}, {1, 0}, {2, 3}, {3, 1}}
	if testutil.Long() {
		pairs = append(pairs, [2]int{0, 1}, [2]int{2, 2}, [2]int{2, 0})
	}
	for i, pair := range pairs {
		from, to := ways[pair[0]], ways[pair[1]]
		onEnds(t, fmt.Sprintf("from %s to %s", from.name, to.name), func(e *ends) { e.faults(i, from, to) })
	}
}

// faults is TestFaults for one pair of ways, the i-th. In the short form every fourth call fails. For iptables, which makes many calls, it is every
// tenth call. The first call that fails differs between the pairs.
func (e *ends) faults(i int, from, to way) {
	t := e.T
	fail, calls := e.sabotage()
	o := control.ApplyOptions{Target: to.target}
	if i%2 == 1 {
		o.Confirm = time.Minute
	}
	failed, step := 0, testutil.Scaled(6, 1)
	if from.target == plan.TargetIptables || to.target == plan.TargetIptables {
		step = testutil.Scaled(10, 1)
	}
	fail(0)
	if to.target == plan.TargetIptables { // the first apply creates tables that stay
		if _, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target}); err != nil {
			t.Fatal(err)
		}
		e.clear()
	}
	again := func() (before string) {
		if _, err := e.try(from.policy("old", 1000), control.ApplyOptions{Target: from.target}); err != nil {
			t.Fatal(err)
		}
		e.block(someBans()...)
		return e.ruleset()
	}
	before := again()
	for n := 1 + i%step; ; n += step {
		what := fmt.Sprintf("from %s to %s (trial %v), call %d,", from.name, to.name, o.Confirm, n)
		fail(n)
		applied, err := e.try(to.policy("new", 2000), o)
		done := calls() < n
		fail(0)
		switch {
		case err == nil && strings.Contains(strings.Join(applied.Notes, "\n"), "the next change removes"):
			if _, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target}); err != nil {
				t.Errorf("%s then the next change: %v", what, err)
			}
			e.wantDecider(what+" and the next change", "new")
		case err == nil:
			e.wantDecider(what, "new")
		default:
			failed++
			if !strings.Contains(err.Error(), "sabotage") {
				t.Errorf("%s says %v", what, err)
			}
			e.wantDecider(what, "old")
			if diff := cmp.Diff(before, e.ruleset()); diff != "" {
				t.Errorf("%s changes (-before +after):\n%s", what, diff)
			}
			if s, err := e.Status(t.Context()); err != nil || s.Trial != nil || s.Target != from.target {
				t.Errorf("%s: status %+v, %v", what, s, err)
			}
		}
		if err == nil { // after an error the state is unchanged for the next fault
			if err := e.Unload(context.Background()); err != nil {
				t.Fatalf("%s: unload: %v", what, err)
			}
			e.wantNothingLeft()
		}
		if t.Failed() {
			t.Fatal(what)
		}
		if done {
			t.Logf("%s each %d: %d faults stopped the apply", what, step, failed)
			break
		}
		if err == nil {
			before = again()
		}
	}
}

// TestRollbackFaults makes single calls of a tool fail during a rollback; in the long form it tests each call. Either the rollback must return an
// error and leave the policy in force, or it must be complete.
func TestRollbackFaults(t *testing.T) {
	for i, pair := range [][2]int{{1, 1}, {0, 1}, {1, 0}, {2, 2}} {
		from, to := ways[pair[0]], ways[pair[1]]
		onEnds(t, fmt.Sprintf("from %s back to %s", to.name, from.name), func(e *ends) { e.rollbackFaults(i, from, to) })
	}
}

// rollbackFaults is TestRollbackFaults for one pair of ways, the i-th. In the short form every third call fails.
func (e *ends) rollbackFaults(i int, from, to way) {
	t := e.T
	fail, calls := e.sabotage()
	step := testutil.Scaled(5, 1)
	fail(0)
	again := true // whether the policies must be applied again; after an error the state is unchanged
	for n, done := 1+i%step, false; !done; n += step {
		if again {
			if _, err := e.try(from.policy("old", 1000), control.ApplyOptions{Target: from.target}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target}); err != nil {
				t.Fatal(err)
			}
			e.block(someBans()...)
		}
		fail(n)
		_, err := e.Rollback(t.Context())
		done = calls() < n
		fail(0)
		what := fmt.Sprintf("from %s back to %s, call %d,", to.name, from.name, n)
		if err == nil {
			e.wantDecider(what, "old")
		} else {
			e.wantDecider(what, "new")
		}
		e.wantBlocked(what, someBlocked)
		if again = err == nil; again || done {
			e.clear()
		}
		if t.Failed() {
			t.Fatal(what, err)
		}
	}
}
