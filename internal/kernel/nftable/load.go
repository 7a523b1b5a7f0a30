// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Name is the name of a table, with its family.
type Name struct {
	Family uint8
	Name   string
}

// Load loads a script into a new network namespace with the given devices, and reads the named tables back from the kernel. It needs root and the
// tool nft. The namespace ends with the call.
func Load(ctx context.Context, script string, devices []string, names ...Name) (tables []*Table, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread, which is in the new namespace, ends with the goroutine
		tables, err = load(ctx, script, devices, names)
	}()
	<-done
	return tables, err
}

func load(ctx context.Context, script string, devices []string, names []Name) (tables []*Table, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	for i, device := range devices {
		if _, err := netlink.LinkByName(device); err == nil { // lo
			continue
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = device
		link := &netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("peer%d", i)}
		if err := netlink.LinkAdd(link); err != nil {
			return nil, fmt.Errorf("making device %s in a network namespace: %w", device, err)
		}
	}
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("nft takes no such script: %w: %s", err, out)
	}
	for _, n := range names {
		t, err := ReadWhole(n.Family, n.Name)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}
