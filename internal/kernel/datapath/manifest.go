// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A manifest is stored in an array map, so it exists exactly as long as its generation. A file could contradict the kernel: the disk may be full or
// read-only, or the file may be from before the boot. Other texts are stored in the same way.

// pinText creates and pins a map with a text. The map has the length of the text in 8 bytes, and then the bytes of the text.
func pinText(path, name string, text []byte) error {
	const chunk = 4096
	entries := (8 + len(text) + chunk - 1) / chunk
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: chunk, MaxEntries: uint32(entries),
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer m.Close()
	memory, err := mapMemory(m, chunk*entries)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer unmap(memory)
	binary.NativeEndian.PutUint64(memory, uint64(len(text)))
	copy(memory[8:], text)
	if err := m.Pin(path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// replaceText pins a text and atomically replaces an existing one. Readers find either the old or the new text.
func replaceText(path, name string, text []byte) error {
	passing := path + passingSuffix
	if err := removeUnused(passing); err != nil { // a process that died between the steps below may have left this file
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := pinText(passing, name, text); err != nil {
		return err
	}
	if err := os.Rename(passing, path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// passingSuffix is the suffix of temporary names. No result of pinName has it.
const passingSuffix = "%new"

// readText reads a text that pinText has pinned.
func readText(path, name string) ([]byte, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer m.Close()
	memory, err := mapMemory(m, int(m.ValueSize()*m.MaxEntries()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer unmap(memory)
	length := binary.NativeEndian.Uint64(memory)
	if length > uint64(len(memory)-8) {
		return nil, fmt.Errorf("%s: it claims %d bytes of %d", name, length, len(memory)-8)
	}
	return append([]byte{}, memory[8:8+length]...), nil
}
