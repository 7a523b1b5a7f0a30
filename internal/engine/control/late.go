package control

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// At boot a device may appear after its policy is loaded. Neither XDP nor the ingress hook can be attached to a device that does not exist.
// Until the policy is applied to it, a table of nftables has the fail-safe at the stage filter for packets of the device, by its name.
// Packets of other devices, such as loopback, leave the table at once.

// LateTable is the table for devices that are not there yet.
func (in Instance) LateTable() string { return in.namePrefix() + "late" }

// LateDevices are the devices that the table keeps closed.
func (in Instance) LateDevices(ctx context.Context) ([]string, error) {
	if there, err := netfilter.HasTable(in.LateTable()); !there || err != nil {
		return nil, orNoRight(err)
	}
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil, err
	}
	return n.InputDevices(ctx, in.LateTable())
}

// OpenLate removes the table, as when the policy is in force on the devices. It reports whether there was anything to end.
func (in Instance) OpenLate(ctx context.Context) (opened bool, err error) {
	there, err := netfilter.HasTable(in.LateTable())
	if !there || err != nil {
		return false, orNoRight(err)
	}
	err = new(netfilter.Nft).Remove(ctx, in.LateTable())
	return err == nil, err
}

// orNoRight is nil for the error that this process may not ask the kernel.
func orNoRight(err error) error {
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
