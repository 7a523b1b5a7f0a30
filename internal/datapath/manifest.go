package datapath

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A manifest is kept in an array map, so that it lives and dies with the generation it describes: no file on a disk
// that is full, read-only or of the boot before can contradict the kernel.

// pinManifestMap makes and pins the map of a manifest: its length in 8 octets, then the octets.
func pinManifestMap(dir string, manifest []byte) error {
	const chunk = 4096
	entries := (8 + len(manifest) + chunk - 1) / chunk
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "manifest", Type: ebpf.Array, KeySize: 4, ValueSize: chunk, MaxEntries: uint32(entries),
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	defer m.Close()
	memory, err := mapMemory(m, chunk*entries)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	defer unix.Munmap(memory[:cap(memory)])
	binary.NativeEndian.PutUint64(memory, uint64(len(manifest)))
	copy(memory[8:], manifest)
	return m.Pin(filepath.Join(dir, pinManifest))
}

// readManifest reads the manifest of the generation in a directory.
func readManifest(dir string) ([]byte, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pinManifest), nil)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	defer m.Close()
	memory, err := mapMemory(m, int(m.ValueSize()*m.MaxEntries()))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	defer unix.Munmap(memory[:cap(memory)])
	length := binary.NativeEndian.Uint64(memory)
	if length > uint64(len(memory)-8) {
		return nil, fmt.Errorf("manifest: it claims %d octets of %d", length, len(memory)-8)
	}
	return append([]byte{}, memory[8:8+length]...), nil
}
