// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Leftovers lists the objects of Floodwall that remain after a test Inside: files in the BPF file system, programs on devices, and programs that were
// loaded inside, with their links and maps. The kernel removes an object some time after the last reference to it is gone. On a busy machine that
// takes seconds. So Leftovers looks repeatedly for a minute, and lists the objects that are always there. A map of another test looks like a map of
// this test until the verifier has finished with the program that uses the map. On a busy machine that took more than 20 seconds.
func Leftovers(before Kernel) []string {
	found := leftovers(before)
	for range 1200 {
		if len(found) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
		now := leftovers(before)
		found = slices.DeleteFunc(found, func(f string) bool { return !slices.Contains(now, f) })
	}
	return found
}

// Kernel is the set of BPF maps that the machine has at some time.
type Kernel map[ebpf.MapID]bool

// Now returns the BPF maps that the whole machine has now.
func Now() Kernel {
	k := Kernel{}
	var id ebpf.MapID
	for {
		next, err := ebpf.MapGetNextID(id)
		if err != nil {
			return k
		}
		k[next] = true
		id = next
	}
}

// LeftoverPins lists only those remaining objects that must be gone at once: files in the BPF file system, and programs on devices. It leaves out the
// program of AttachForeign. All other objects exist only as long as these, or a process, refer to them.
func LeftoverPins() (found []string) {
	filepath.WalkDir(bpfRoot, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != bpfRoot && !strings.HasSuffix(path, ".debug") {
			found = append(found, "file "+path)
		}
		return nil
	})
	devices, err := netlink.LinkList()
	if err != nil {
		return append(found, fmt.Sprintf("devices cannot be listed: %v", err))
	}
	for _, d := range devices {
		x := d.Attrs().Xdp
		if x == nil || x.ProgId == 0 {
			continue
		}
		if name := programName(ebpf.ProgramID(x.ProgId)); name != foreignName {
			found = append(found, fmt.Sprintf("program %s on device %s", name, d.Attrs().Name))
		}
	}
	return found
}

// bpfRoot is the mount point of the BPF file system of a test Inside.
const bpfRoot = "/sys/fs/bpf"

func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

func leftovers(before Kernel) []string {
	found := LeftoverPins()
	ours, othersMaps := programs()
	for id, name := range ours {
		found = append(found, fmt.Sprintf("program %d %s", id, name))
	}
	found = append(found, links(ours)...)
	return append(found, orphans(before, othersMaps)...)
}

// programs returns the programs that were loaded inside, and the maps that all other programs use.
func programs() (ours map[ebpf.ProgramID]string, othersMaps Kernel) {
	ours, othersMaps = map[ebpf.ProgramID]string{}, Kernel{}
	var id ebpf.ProgramID
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return ours, othersMaps
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // it has just gone
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			continue
		}
		if uid, ok := info.CreatedByUID(); ok && int(uid) == os.Geteuid() && info.Name != foreignName {
			ours[id] = info.Name
			continue
		}
		ids, _ := info.MapIDs()
		for _, m := range ids {
			othersMaps[m] = true
		}
	}
}

func links(ours map[ebpf.ProgramID]string) (found []string) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && ours[info.Program] != "" {
			found = append(found, fmt.Sprintf("link %d", info.ID))
		}
	}
	return found
}

// orphans lists new maps that no other program uses. The kernel does not say who made a map, so orphans looks for the names of Floodwall's maps. It
// leaves out maps to which only a file refers: those of manifests and of known bans.
func orphans(before, others Kernel) (found []string) {
	names := []string{"counters", "dynamic", "lines4", "full4", "hosts4", "host_classes4", "hosts4_found", "buckets6", "masks", "rows",
		"guards", "guard_ports", "verified"}
	for id := range maps.Keys(Now()) {
		if before[id] || others[id] {
			continue
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		info, err := m.Info()
		m.Close()
		if err == nil && slices.Contains(names, info.Name) {
			found = append(found, fmt.Sprintf("map %d %s", id, info.Name))
		}
	}
	return found
}
