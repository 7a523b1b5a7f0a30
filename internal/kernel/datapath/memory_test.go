// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestLargeMemory writes a map that takes several mmap calls, and looks up the elements in the kernel. Each part must be at its offset, and no memory
// may stay mapped.
func TestLargeMemory(t *testing.T) {
	testutil.RequireRoot(t)
	const size, entries = 64, (5<<20 + 4096) / 64
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "fw_large_memory", Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: entries, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	memory, err := mapMemory(m, size*entries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		binary.LittleEndian.PutUint64(memory[i*size:], uint64(i)*0x9e3779b97f4a7c15)
	}
	unmap(memory)
	var value [size]byte
	for i := range uint32(entries) {
		if err := m.Lookup(i, &value); err != nil {
			t.Fatal(err)
		}
		if got, want := binary.LittleEndian.Uint64(value[:]), uint64(i)*0x9e3779b97f4a7c15; got != want {
			t.Fatalf("entry %d is %#x, want %#x", i, got, want)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "bpf-map") && strings.Contains(line, "rw-s") {
			t.Errorf("still mapped: %s", line)
		}
	}
}
