package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStateDir has an instance with a state directory of its own. Commands that name none use it, those that name another one refuse and
// change nothing, and so does a daemon. A directory that was moved is that of the next apply. A daemon that runs before anything is applied
// says which one to use.
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
	kept := func(in string) bool {
		text, err := os.ReadFile(filepath.Join(in, "bans", "bans"))
		return err == nil && strings.Contains(string(text), "198.51.100.1")
	}
	refused := func(uses string, args ...string) {
		t.Helper()
		out, err := floodwall(append(args, "--state", other)...)
		if exitCode(err) != 1 || !strings.Contains(out, "state directory "+other) || !strings.Contains(out, "uses "+uses+"\n") || !strings.Contains(out, "mv "+uses+" "+other) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", file, "--target", target, "--state", own)
		for _, command := range []string{"block 198.51.100.1", "unblock 198.51.100.1", "apply " + file, "rollback", "unload", "daemon"} {
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
	mustFloodwall(t, "apply", file, "--state", moved)
	if err := os.Symlink(moved, link); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "block", "198.51.100.2", "--state", link)
	refused(moved, "unblock", "198.51.100.1")
	mustFloodwall(t, "rollback", "--state", moved)
	mustFloodwall(t, "block", "198.51.100.3", "--state", moved)
	mustFloodwall(t, "unload", "--state", moved)

	h := startDaemon(t, "--state", own)
	refused(own, "apply", file)
	mustFloodwall(t, "apply", file)
	mustFloodwall(t, "block", "198.51.100.1")
	if !kept(own) {
		t.Error("the ban is not kept where the daemon keeps its own")
	}
	h.kill()
}
