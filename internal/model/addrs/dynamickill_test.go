// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bufio"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

const killFile = "FLOODWALL_TEST_KILL_FILE" // an environment variable of the process that will be killed

// mapDynamic maps the memory of one set from a file, so that it outlives its writer as a BPF array does.
func mapDynamic(t *testing.T, path string, buckets int) DynamicMemory {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := DynamicInfoBytes + WhyTextsBytes + buckets*(BucketBytes+WhyBytes)
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(memory) })
	info, memory := memory[:DynamicInfoBytes], memory[DynamicInfoBytes:]
	table, memory := memory[:buckets*BucketBytes], memory[buckets*BucketBytes:]
	return DynamicMemory{Info: info, Buckets: table, Texts: memory[:WhyTextsBytes], Why: memory[WhyTextsBytes:]}
}

const (
	killBuckets  = 32
	killCapacity = 90
	killStay     = 30
)

func stayPrefix(i int) netip.Prefix { return netip.PrefixFrom(addr4(0x0a000000+uint32(i)), 32) }

// TestDynamicKilledWriter kills a writer at random moments. The entries that it inserted before must be there, and
// the next writer must find a valid set.
func TestDynamicKilledWriter(t *testing.T) {
	if path := os.Getenv(killFile); path != "" {
		writeUntilKilled(t, mapDynamic(t, path, killBuckets))
	}
	r := testutil.Random(t)
	path := filepath.Join(t.TempDir(), "memory")
	m := mapDynamic(t, path, killBuckets)
	if err := m.Format(killBuckets); err != nil {
		t.Fatal(err)
	}
	native.PutUint32(m.Info[infoCapacity:], killCapacity)
	s := openDynamic(t, m).Sets[0]
	for i := range killStay {
		if err := s.Insert(Entry{Prefix: stayPrefix(i), Why: "stays"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		runAndKill(t, path, time.Duration(r.IntN(2000))*time.Microsecond)
		checkSurvivors(t, openDynamic(t, m).Sets[0])
	}
}

// writeUntilKilled runs in the other process. It inserts and deletes entries until it is killed.
func writeUntilKilled(t *testing.T, m DynamicMemory) {
	s := openDynamic(t, m).Sets[0]
	os.Stdout.WriteString("writing\n")
	for {
		p := netip.PrefixFrom(addr4(0xc0000200+rand.Uint32N(200)), 32-rand.IntN(3)).Masked()
		if rand.IntN(3) > 0 {
			s.Insert(Entry{Prefix: p, Why: "comes and goes"}, 0)
		} else {
			s.Delete(p, 0)
		}
	}
}

func runAndKill(t *testing.T, path string, after time.Duration) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestDynamicKilledWriter$")
	c.Env = append(os.Environ(), killFile+"="+path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if !strings.HasPrefix(line, "writing") {
		t.Errorf("the writer did not start: %q, %v", line, err)
	}
	time.Sleep(after)
	c.Process.Kill()
	c.Wait()
}

// checkSurvivors checks the set as the datapath reads it, and then as the next writer does.
func checkSurvivors(t *testing.T, s *DynamicSet) {
	t.Helper()
	for i := range killStay {
		if !s.Contains(stayPrefix(i).Addr(), 0) {
			t.Fatalf("%s is gone", stayPrefix(i))
		}
	}
	s.Delete(netip.MustParsePrefix("2001:db8::/32"), 0) // the first change repairs what the killed writer left incomplete
	seen := map[netip.Prefix]bool{}
	for e := range s.All(0) {
		if seen[e.Prefix] {
			t.Fatalf("%s is there twice", e.Prefix)
		}
		seen[e.Prefix] = true
		if want := netip.MustParsePrefix("10.0.0.0/8").Contains(e.Prefix.Addr()); want != (e.Why == "stays") {
			t.Fatalf("%s has reason %q", e.Prefix, e.Why)
		}
		if !s.Contains(e.Prefix.Addr(), 0) {
			t.Fatalf("%s is not found", e.Prefix)
		}
	}
	if got := int(s.word(infoEntries)); got != len(seen) {
		t.Fatalf("%d entries counted, there are %d", got, len(seen))
	}
}
