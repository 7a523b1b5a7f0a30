// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestFleetPolicies runs a hub and two nodes, all real processes, with policies in the kernel. A version must go to the canary and then to the other
// node. Both must then drop a client. A version that cuts the canary off from the hub must be rolled back, and must not go to the other node. The
// status must show a manual apply. A rollback must restore the files of the first version. A kill of a daemon during a trial must do no harm.
func TestFleetPolicies(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	sh(t, "ip link set lo up; ip link add name hubs type bridge; ip addr add 10.9.0.1/24 dev hubs; ip addr add 198.51.100.7/32 dev lo; ip link set hubs up")
	t.Cleanup(func() {
		if hubs, err := netlink.LinkByName("hubs"); err == nil {
			netlink.LinkDel(hubs)
		}
	})
	dir := t.TempDir()
	hub, key := filepath.Join(dir, "hub"), filepath.Join(dir, "policy.key")
	mustFloodwall(t, "hub", "init", "--dir", hub, "--address", "10.9.0.1")
	startHub(t, hub)
	waitFor(t, "the hub", func() bool {
		text, _ := os.ReadFile(hub + ".log")
		return strings.Contains(string(text), "serves nodes")
	})
	public := regexp.MustCompile(`A[A-Z0-9]{55}`).FindString(mustFloodwall(t, "fleet", "key", key))
	a, b := newNodeHost(t, dir, "web-a", 11), newNodeHost(t, dir, "web-b", 12)
	for _, n := range []*nodeHost{a, b} {
		command := strings.Fields(mustFloodwall(t, "hub", "invite", n.name, "--dir", hub))
		n.run(append(command[1:], "--policy-key", public)...)
		n.start()
	}
	status := func() string { return mustFloodwall(t, "fleet", "status", "--dir", hub) }
	waitFor(t, "both nodes report", func() bool { return strings.Count(status(), "s ago") == 2 })
	push := func(policy string, flags ...string) (string, error) {
		files := filepath.Join(dir, "files")
		writeFile(t, filepath.Join(files, "policy.yaml"), policy)
		writeFile(t, filepath.Join(files, "lists", "bad.txt"), "198.51.100.7\n")
		return floodwall(append([]string{"fleet", "push", files, "--key", key, "--dir", hub}, flags...)...)
	}

	good := strings.Replace(fleetPolicy, "rules:\n", "  bad: {file: lists/bad.txt}\nrules:\n  - {name: bad, from: $bad, then: drop}\n", 1)
	if out, err := push(good, "--canary", "web-a", "--pause", "1s"); err != nil || !strings.Contains(out, "version 1 runs on all nodes that report") {
		t.Fatalf("the first version: %v\n%s", err, out)
	}
	if a.passes() || b.passes() {
		t.Error("the first version does not drop the client at both nodes")
	}
	if out := status(); strings.Count(out, "runs") != 2 {
		t.Errorf("the status of the fleet:\n%s", out)
	}

	cut := strings.Replace(good, "rules:\n", "rules:\n  - {name: cut, from: 10.9.0.1, then: drop}\n", 1)
	if out, err := push(cut, "--canary", "web-a", "--pause", "1s", "--confirm", "10s"); err == nil || !strings.Contains(out, "goes to no other node: canary web-a: no hub was reached") {
		t.Errorf("the version that cuts the canary off: %v\n%s", err, out)
	}
	if out := status(); a.passes() || b.passes() || !strings.Contains(out, "2 failed") || !strings.Contains(out, "2 waiting") {
		t.Errorf("after the version that cuts the canary off, the status is:\n%s", out)
	}

	own := filepath.Join(dir, "own.yaml")
	writeFile(t, own, fleetPolicy)
	b.run("apply", own)
	waitFor(t, "what was applied by hand is shown", func() bool { return strings.Contains(status(), "changed by hand: "+own) })
	if !testutil.Eventually(filteredAgain, b.passes) {
		t.Error("the client does not reach node b after somebody's own apply")
	}

	third := strings.Replace(good, "name: bad", "name: third", 1)
	if out, err := push(third, "--all"); err != nil || !strings.Contains(out, "version 3 runs on all nodes") {
		t.Errorf("the third version: %v\n%s", err, out)
	}
	if a.passes() || b.passes() {
		t.Error("the third version does not drop the client at both nodes")
	}
	b.kill()
	b.start()
	out, err := floodwall("fleet", "rollback", "--to", "1", "--all", "--key", key, "--dir", hub)
	if err != nil || !strings.Contains(out, "version 4 has the files of version 1") || !strings.Contains(out, "version 4 runs on all nodes") {
		t.Errorf("the rollback: %v\n%s", err, out)
	}
	for _, n := range []*nodeHost{a, b} {
		waitFor(t, n.name+" says that version 4 runs", func() bool { return strings.Contains(n.run("status"), "policy of the fleet: version 4\n") })
	}

	key = filepath.Join(dir, "new.key") // the first one is lost
	public = regexp.MustCompile(`A[A-Z0-9]{55}`).FindString(mustFloodwall(t, "fleet", "key", key))
	if out, err := push(good, "--all"); err == nil || !strings.Contains(out, "signed by another key") {
		t.Errorf("a version of a new key, by mistake: %v\n%s", err, out)
	}
	for _, n := range []*nodeHost{a, b} {
		n.run("fleet", "trust", public)
		waitFor(t, n.name+" takes up the new key", func() bool { return strings.Contains(n.run("status"), "policy of the fleet: none yet") })
	}
	fourth := strings.Replace(fleetPolicy, "rules:\n", "  bad: {file: lists/bad.txt}\nrules:\n  - {name: fourth, from: $bad, then: drop}\n", 1)
	if out, err := push(fourth, "--new-key", "--all"); err != nil || !strings.Contains(out, "version 1 runs on all nodes that report") {
		t.Errorf("the first version of the new key: %v\n%s", err, out)
	}
	for _, n := range []*nodeHost{a, b} {
		if out := n.run("status"); !strings.Contains(out, "fourth") || n.passes() {
			t.Errorf("%s does not have the policy of the new key:\n%s", n.name, out)
		}
	}
}
