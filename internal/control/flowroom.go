package control

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile"
)

// flowShare is the part of this host's memory from which on the table of flows is worth a note.
const flowShare = 8

// roomForFlows notes a table of flows that takes much of the memory of this host: it is there from the start, in the kernel,
// and a second one while a policy with another size follows.
func (a *apply) roomForFlows() error {
	octets, err := compile.FlowMemory(a.compiled.Program)
	if err != nil || a.target != compile.TargetXDP {
		return err
	}
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return fmt.Errorf("memory of this host: %w", err)
	}
	a.note(flowRoomNote(uint64(octets), uint64(host.Totalram)*uint64(host.Unit)))
	return nil
}

// flowRoomNote is that note for a table of so many octets, "" when it takes little of all that there are.
func flowRoomNote(octets, total uint64) string {
	if octets <= total/flowShare {
		return ""
	}
	return fmt.Sprintf("the connections that protected services remember take %d MB in the kernel, of %d MB that this host has; "+
		"a smaller `flows` takes less", octets>>20, total>>20)
}
