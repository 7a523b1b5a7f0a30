// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestStrictKilled runs applies that make conntrack strict. It kills an apply after each netfilter tool that the apply runs, or in the short form
// after every fifth. The next command that changes anything must restore the host's settings.
func TestStrictKilled(t *testing.T) {
	for _, tool := range stepTools {
		testutil.RequireTool(t, tool)
	}
	if !inside(t) {
		return
	}
	dir := scripts(t, killer)
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	strict := write(filepath.Join(t.TempDir(), "strict.yaml"), `devices: [fw0]
services: [{name: web, port: tcp/80, syn: {mode: router, when: always}}]
`)
	const looseFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"
	steps := filepath.Join(t.TempDir(), "steps")
	kills := 0
	for step, done := 1, false; !done; step += testutil.Scaled(3, 1) {
		write(looseFile, "1")
		write(steps, "0")
		cmd := exec.Command("floodwall", "apply", "--target", "xdp", strict)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the killer ends its group
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "STEPS="+steps, fmt.Sprintf("STEP=%d", step))
		out, err := cmd.CombinedOutput()
		if done = err == nil; !done && cmd.ProcessState.ExitCode() != killed {
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		if !done {
			kills++
		}
		if step%2 == 0 {
			mustFloodwall(t, "apply", drops(t, 1000))
		} else if out, err := floodwall("unload"); err != nil && !strings.Contains(out, "nothing is loaded") {
			t.Fatalf("step %d: unload: %v\n%s", step, err, out)
		}
		if text, err := os.ReadFile(looseFile); err != nil || strings.TrimSpace(string(text)) != "1" {
			t.Errorf("killed after step %d: nf_conntrack_tcp_loose is %q (%v)", step, text, err)
		}
		floodwall("unload")
	}
	if kills < 2 {
		t.Errorf("%d applies were killed: the test shows nothing", kills)
	}
	t.Logf("%d applies were killed", kills)
}
