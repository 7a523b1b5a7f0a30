// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/instance"
)

// TestStateDir uses an instance with a state directory of its own. Commands that name no directory must use this one. Commands and a daemon that name
// another directory must fail and change nothing. After the directory was moved, the next apply must use the new place. A daemon that starts before
// the first apply must determine the directory.
func TestStateDir(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	file, own, other := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "own"), filepath.Join(dir, "other")
	writeFile(t, file, lostPolicy)
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	holds := func(in, ban string) bool {
		text, err := os.ReadFile(filepath.Join(in, "bans", "bans"))
		return err == nil && strings.Contains(string(text), ban)
	}
	kept := func(in string) bool { return holds(in, "198.51.100.1") }
	refused := func(uses string, args ...string) {
		t.Helper()
		out, err := floodwall(append(args, "--state", other)...)
		if exitCode(err) != 1 || !strings.Contains(out, "state directory "+other) || !strings.Contains(out, "uses "+uses+"\n") || !strings.Contains(out, "mv -T "+uses+" "+other) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", file, "--target", target, "--state", own)
		for _, command := range []string{"block 198.51.100.1", "unblock 198.51.100.1", "apply " + file, "rollback", "unload", "daemon",
			"leave", "fleet trust none", "join --name web-1 --nats tls://192.0.2.9:4222 --controller none"} {
			refused(own, strings.Fields(command)...)
		}
		if list := mustFloodwall(t, "blocked"); strings.Contains(list, "198.51.100.1") {
			t.Errorf("%s: what was refused had an effect:\n%s", target, list)
		}
		mustFloodwall(t, "block", "198.51.100.1")
		if !kept(own) || kept(other) {
			t.Errorf("%s: the ban is kept in the directory of the policy: %v, in another one: %v", target, kept(own), kept(other))
		}
		mustFloodwall(t, "apply", file) // the record goes on
		refused(own, "unblock", "198.51.100.1")
		h := startDaemon(t)
		mustFloodwall(t, "unblock", "198.51.100.1")
		h.kill()
		mustFloodwall(t, "unload")
	}

	mustFloodwall(t, "apply", file, "--state", own)
	mustFloodwall(t, "block", "198.51.100.1")
	moved, link := filepath.Join(dir, "moved"), filepath.Join(dir, "link")
	if err := os.Rename(own, moved); err != nil {
		t.Fatal(err)
	}
	warning := "the state directory of the policy that runs, " + own + ", does not exist"
	for _, command := range []string{"status", "block 198.51.100.9 --state " + moved, "apply " + file + " --state " + moved} {
		if out := mustFloodwall(t, strings.Fields(command)...); !strings.Contains(out, warning) {
			t.Errorf("%s says nothing of the directory that has gone:\n%s", command, out)
		}
	}
	if out := mustFloodwall(t, "status"); strings.Contains(out, "does not exist") {
		t.Errorf("after an apply with the new directory:\n%s", out)
	}
	if err := os.Symlink(moved, link); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "block", "198.51.100.2", "--state", link)
	refused(moved, "unblock", "198.51.100.1")
	mustFloodwall(t, "rollback") // to a policy of the time before the move
	mustFloodwall(t, "block", "198.51.100.3")
	if !holds(moved, "198.51.100.3") {
		t.Error("the ban after a rollback is not kept where the directory was moved")
	}
	fresh := filepath.Join(dir, "the fresh one")
	out, err := floodwall("apply", file, "--state", fresh)
	command := regexp.MustCompile("`(mv [^`]*)`").FindStringSubmatch(out)
	if exitCode(err) != 1 || command == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := exec.Command("sh", "-c", command[1]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command[1], err, text)
	}
	mustFloodwall(t, "apply", file, "--state", fresh, "--confirm", "5m")
	mustFloodwall(t, "rollback")
	mustFloodwall(t, "block", "198.51.100.4")
	if !holds(fresh, "198.51.100.3") || !holds(fresh, "198.51.100.4") {
		t.Errorf("not all bans are in %s, to where the hint has moved them", fresh)
	}
	mustFloodwall(t, "unload")

	blocked := filepath.Join(file, "below a file")
	if out := mustFloodwall(t, "apply", file, "--state", blocked); !strings.Contains(out, "bans and lists are not kept") {
		t.Errorf("nothing is said of a directory that cannot be made:\n%s", out)
	}
	mustFloodwall(t, "apply", file, "--state", own)
	mustFloodwall(t, "unload")

	h := startDaemon(t, "--state", own)
	refused(own, "apply", file)
	mustFloodwall(t, "apply", file)
	mustFloodwall(t, "block", "198.51.100.1")
	if !kept(own) {
		t.Error("the ban is not kept where the daemon keeps its own")
	}
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"block 198.51.100.5", "unload"} { // although the recorded policy is gone
		refused(own, strings.Fields(command)...)
	}
	h.kill()
	mustFloodwall(t, "unload")
}

// TestStateDirOfWhatHasGone covers two cases: other programs remove the policy from netfilter, and the instance was made by a version that recorded
// no directory. In both cases the daemon must always use the same directory, and commands must refuse another one. No command may read the directory
// from netfilter. If netfilter does not answer, the daemon must still start.
func TestStateDirOfWhatHasGone(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	file, own, other, tools := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "own"), filepath.Join(dir, "other"), filepath.Join(dir, "tools")
	writeFile(t, file, lostPolicy)
	for _, d := range []string{other, tools} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mustFloodwall(t, "apply", file, "--target", "nftables", "--state", own)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h := startDaemon(t)
	if used := instance.LockOf(datapath.DefaultDir).State(); used != own {
		t.Errorf("the daemon of a policy that others have removed uses %s, want %s", used, own)
	}
	waitFor(t, "the repair", func() bool {
		_, err := floodwall("block", "198.51.100.1", "--state", own)
		return err == nil
	})
	h.kill()

	if err := os.Remove(filepath.Join(datapath.DefaultDir, "directory")); err != nil { // like a version that recorded no directory
		t.Fatal(err)
	}
	h = startDaemon(t, "--state", own)
	if out, err := floodwall("block", "198.51.100.2", "--state", other); exitCode(err) != 1 || !strings.Contains(out, "uses "+own) {
		t.Errorf("beside the daemon: %v\n%s", err, out)
	}
	h.kill()
	if out, err := floodwall("block", "198.51.100.2", "--state", other); exitCode(err) != 1 || !strings.Contains(out, "uses "+own) {
		t.Errorf("after the daemon: %v\n%s", err, out)
	}

	asked := filepath.Join(dir, "asked")
	if err := os.WriteFile(filepath.Join(tools, "nft"), []byte("#!/bin/sh\necho \"$@\" >>"+asked+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", tools+":"+path)
	mustFloodwall(t, "version")
	mustFloodwall(t, "attacks")
	if text, err := os.ReadFile(asked); err == nil {
		t.Errorf("nft was asked:\n%s", text)
	}
	startDaemon(t).kill()
	t.Setenv("PATH", path)
	mustFloodwall(t, "unload")
}
