// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// askingVar is the environment variable that makes this binary ask questions until it is killed.
const askingVar = "FLOODWALL_TEST_ASKING"

// TestKilled kills a process while it asks a question. No program that it started and no namespace of it may remain.
func TestKilled(t *testing.T) {
	part := Part{Tool: Nft, Name: "ours", Devices: []string{"fw0"}}
	frame, p := parsed(t, "udp 198.51.100.7:999 > 192.0.2.1:1")
	for os.Getenv(askingVar) != "" {
		if _, err := Ask(context.Background(), part, frame, p); err != nil {
			t.Fatal(err)
		}
	}
	if !furnished(t, `table inet ours { chain c { type filter hook input priority 0; udp dport 1 drop; }; }`) {
		return
	}
	random := testutil.Random(t)
	before := namespaces(t)
	others := 0
	for kill := 0; kill < 15 || others == 0 && kill < 150; kill++ {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), askingVar+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(30+random.IntN(120)) * time.Millisecond * time.Duration(1+kill/15)) // on a busy machine a process starts late
		if len(namespaces(t)) > len(before) {
			others++
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatalf("it was not asking any more: %v", err)
		}
		cmd.Wait()
		after := namespaces(t)
		for end := time.Now().Add(time.Minute); !cmp.Equal(before, after) && time.Now().Before(end); after = namespaces(t) {
			time.Sleep(10 * time.Millisecond)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("after the kill, namespaces with their processes (-before +after):\n%s", diff)
		}
	}
	if others == 0 {
		t.Error("it was never killed while it had a namespace")
	}
}

// namespaces lists the network namespaces of the threads of this test's user, with the programs in them.
func namespaces(t *testing.T) map[string]bool {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, link := range links {
		dir := filepath.Dir(filepath.Dir(link))
		info, err := os.Stat(dir)
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		if to, err := os.Readlink(link); err == nil {
			found[to+" "+strings.TrimSpace(string(name))] = true
		}
	}
	return found
}
