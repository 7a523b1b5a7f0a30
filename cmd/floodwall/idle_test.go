package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestIdleLooks counts how often a daemon starts iptables-save while nothing happens. The legacy rules of other programs change without
// notice, so it has to look. Its tasks share what they see; each for itself, they looked 19 times a second.
func TestIdleLooks(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	real, err := exec.LookPath("iptables-save")
	if err != nil {
		t.Fatal(err)
	}
	counted := filepath.Join(dir, "counted")
	script := "#!/bin/sh\necho >>" + counted + "\nexec " + real + ` "$@"`
	if err := os.WriteFile(filepath.Join(dir, "iptables-save"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", drops(t, 7), "--target", "iptables")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	startDaemon(t)
	count := func() int {
		data, _ := os.ReadFile(counted)
		return strings.Count(string(data), "\n")
	}
	waitFor(t, "the first look", func() bool { return count() > 0 })
	before, start := count(), time.Now()
	time.Sleep(4 * time.Second)
	const tables = 3
	looks := float64(count()-before) / tables / time.Since(start).Seconds()
	t.Logf("%.1f looks a second", looks)
	if looks > 17 {
		t.Errorf("an idle daemon looks at the tables of iptables %.1f times a second", looks)
	}
}
