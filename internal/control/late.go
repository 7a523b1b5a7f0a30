package control

import (
	"context"

	"github.com/floodwall/floodwall/internal/netfilter"
)

// At boot a device may appear later than its policy is brought back. Neither XDP nor the ingress hook knows a device that is not
// there. So until the policy is applied on it, a table of nftables holds the fail-safe at the stage filter for packets of the device,
// which it knows by its name. Packets of other devices, loopback among them, leave the table at once.

// LateTable is the table for devices that are not there yet.
func (in Instance) LateTable() string { return in.namePrefix() + "late" }

// LateDevices are the devices that the table keeps closed.
func (in Instance) LateDevices(ctx context.Context) ([]string, error) {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil, nil // there is no such table without nft
	}
	return n.InputDevices(ctx, in.LateTable())
}

// OpenLate removes the table, as when the policy is in force on the devices. It reports whether there was anything to end.
func (in Instance) OpenLate(ctx context.Context) (opened bool, err error) {
	devices, err := in.LateDevices(ctx)
	if devices == nil || err != nil {
		return false, err
	}
	n, err := netfilter.FindNft(ctx)
	if err == nil {
		err = n.Remove(ctx, in.LateTable())
	}
	return err == nil, err
}
