// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

func TestMain(m *testing.M) { os.Exit(OwnMounts(m)) }

// waitVar is an environment variable. If it is set, TestMountBPF pins a map and then waits.
const waitVar = "FLOODWALL_TEST_WAIT"

// TestMountBPF pins a map in a BPF file system of its own. If the process is killed while the map is pinned, nothing may remain. Only the pin refers
// to the map, so the map must be gone after the mount has ended.
func TestMountBPF(t *testing.T) {
	if os.Getenv(waitVar) != "" {
		pinAndWait(t)
		return
	}
	RequireRoot(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMountBPF$")
	cmd.Env = slices.DeleteFunc(append(os.Environ(), waitVar+"=yes"), func(v string) bool { return strings.HasPrefix(v, mountsVar+"=") })
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var id ebpf.MapID
	var dir string
	if _, scanned := fmt.Sscan(line, &id, &dir); err != nil || scanned != nil {
		t.Fatalf("the process printed %q: %v", line, err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(dir)) }) // t.TempDir of a killed process is not removed
	if !Now()[id] {
		t.Fatalf("map %d is not there while it is pinned", id)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for end := time.Now().Add(time.Minute); Now()[id]; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("map %d, pinned below %s, outlives the process that was killed", id, dir)
		}
	}
}

// pinAndWait prints the directory, and the ID of a map to which only a pin refers. Then it waits until it is killed.
func pinAndWait(t *testing.T) {
	dir := MountBPF(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = m.Pin(filepath.Join(dir, "map"))
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	m.Close()
	fmt.Println(id, dir)
	time.Sleep(time.Minute)
}
