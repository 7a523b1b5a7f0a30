// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestLean limits the cost of an installed floodwall. The binary has at most 28.2 MB, built as for packages. It contains no modules that only other
// programs need (scripts/lint checks each package). It does little before main: the test counts the allocations in all init functions. That number
// stands for the run time of `floodwall help`, but does not depend on the machine: 12,914 allocations took 17 ms of CPU time, 5,976 take 9 ms.
func TestLean(t *testing.T) {
	const mostBytes, mostAllocations = 28_200_000, 7000
	file := filepath.Join(os.Getenv(programsVar), "floodwall")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("floodwall has %d bytes, more than %d", info.Size(), mostBytes)
	}
	built, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Deps) < 10 {
		t.Fatalf("floodwall is built from %d modules", len(built.Deps))
	}
	for _, m := range built.Deps {
		if slices.Contains([]string{
			"github.com/gopacket/gopacket", "github.com/nats-io/nats-server/v2", "github.com/osrg/gobgp/v4", "google.golang.org/grpc",
			"gonum.org/v1/plot", "codeberg.org/go-fonts/liberation", "golang.org/x/perf",
		}, m.Path) {
			t.Errorf("floodwall has %s in it", m.Path)
		}
	}
	c := exec.Command(file, "help")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("floodwall help: %v\n%s", err, out)
	}
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^init .* (\d+) allocs$`).FindAllSubmatch(out, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum == 0 || sum > mostAllocations {
		t.Errorf("floodwall allocates %d times before main, at most %d are allowed:\n%s", sum, mostAllocations, out)
	}
}

// TestLeanDaemon limits the memory of an installed daemon that has nothing to do, with the page and with samples, in bytes. The daemon has
// given back what it needed to start.
func TestLeanDaemon(t *testing.T) {
	if !inside(t) {
		return
	}
	const most = 30_000_000 // it had 26.6 million, of which 18 are pages of the file
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, scraped)
	mustFloodwall(t, "apply", file)
	startInstalled(t)
	time.Sleep(startTimes[len(startTimes)-1] + 5*time.Second)
	resident := 0.0
	if !testutil.Eventually(2*time.Minute, func() bool {
		time.Sleep(time.Second)
		a, err := get(readSocket, "/v1/metrics")
		resident = metric(a.body, residentMemory)
		return err == nil && resident > 0 && resident <= most
	}) {
		t.Errorf("the daemon has %.0f bytes in memory, more than %d", resident, most)
	}
	t.Logf("the daemon has %.0f bytes in memory", resident)
}
