// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// container is a network namespace. It exists as long as the process in it.
type container struct{ process *exec.Cmd }

// newContainer starts a container with a device fw0, whose other end is fw1.
func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{exec.Command("unshare", "--net", "--keep-caps", "sh", "-c", "echo made; exec sleep 600")}
	out, err := c.process.StdoutPipe()
	if err == nil {
		err = c.process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatalf("unshare: %v", err)
	}
	for _, line := range []string{"link add fw0 type veth peer name fw1", "link set fw0 up", "link set fw1 up"} {
		if out, err := c.run(append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	return c
}

// run runs a command line in the namespace.
func (c *container) run(args ...string) (string, error) {
	enter := []string{fmt.Sprintf("--net=/proc/%d/ns/net", c.process.Process.Pid)}
	out, err := exec.Command("nsenter", append(enter, args...)...).CombinedOutput()
	return string(out), err
}

// stop ends the process. The kernel removes its network namespace some time later.
func (c *container) stop() {
	c.process.Process.Signal(unix.SIGKILL)
	c.process.Wait()
}

// TestContainerRestart keeps the state's directory while another network namespace replaces the first. As long as the first namespace exists,
// commands in the second must fail and change nothing. After the first has ended, apply must take over the state with its counters, and unload must
// remove it.
func TestContainerRestart(t *testing.T) {
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "nsenter")
	for _, target := range []string{"xdp", "nftables"} {
		policy := drops(t, 7)
		must := func(c *container, want string, args ...string) {
			t.Helper()
			out, err := c.run(append([]string{"floodwall"}, args...)...)
			if err != nil || !strings.Contains(out, want) {
				t.Fatalf("%s: floodwall %v: %v, want %q in\n%s", target, args, err, want, out)
			}
		}
		first := newContainer(t)
		must(first, "applied generation 1", "apply", "--target", target, policy)
		second := newContainer(t)
		for _, args := range [][]string{{"apply", "--target", target, policy}, {"unload"}} {
			out, err := second.run(append([]string{"floodwall"}, args...)...)
			if err == nil || !strings.Contains(out, "belongs to a Floodwall in another network namespace") {
				t.Fatalf("%s: %v while the first namespace lives: %v\n%s", target, args, err, out)
			}
		}
		must(first, "target "+target, "status")
		first.stop()
		// The kernel removes a network namespace with a delay after its last process has ended (cleanup_net in net/core/net_namespace.c).
		out, err := "", error(nil)
		waitFor(t, "an apply after the namespace has ended", func() bool {
			out, err = second.run("floodwall", "apply", "--target", target, policy)
			return err == nil || !strings.Contains(out, "belongs to a Floodwall in another network namespace")
		})
		if err != nil || !strings.Contains(out, "applied generation 2") {
			t.Fatalf("%s: apply: %v, want generation 2 in\n%s", target, err, out)
		}
		must(second, "target "+target, "status")
		second.stop()
		third := newContainer(t)
		unloaded := func() bool {
			_, err := third.run("floodwall", "unload")
			return err == nil
		}
		waitFor(t, "an unload after the namespace has ended", unloaded)
		if found := testutil.LeftoverPins(); found != nil {
			t.Errorf("%s: left behind: %v", target, found)
		}
		must(third, "applied generation 1", "apply", "--target", target, policy)
		must(third, "unloaded", "unload")
		third.stop()
	}
}
