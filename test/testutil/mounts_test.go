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

// waitVar has TestMountBPF wait when it has pinned a map.
const waitVar = "FLOODWALL_TEST_WAIT"

// TestMountBPF pins a map in a BPF file system of its own. A process that is killed in the middle of that leaves nothing: the map, which
// only the pin holds, ends with the mount.
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
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(dir)) }) // the directory of t.TempDir of a process that is killed
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

// pinAndWait prints the ID of a map that only a pin holds, and the directory, and waits to be killed.
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
