// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// At boot a device may appear after its policy is loaded. XDP and the ingress hook cannot be attached to a device that does not exist. Until the
// policy is applied to the device, a table of nftables applies the fail-safe to the device's packets. The table matches the device's name at the
// stage filter. It passes packets of all other devices, such as loopback, at once.

// LateTable returns the name of the table for devices that appear late.
func (in Instance) LateTable() string { return in.namePrefix() + "late" }

// LateDevices returns the devices to which the table applies the fail-safe.
func (in Instance) LateDevices() ([]string, error) {
	if there, err := netfilter.HasTable(in.LateTable()); !there || err != nil {
		return nil, orNoRight(err)
	}
	return netfilter.InputDevices(in.LateTable())
}

// OpenLate removes the table, for example when the policy is in force on the devices. It returns true if there was a table.
func (in Instance) OpenLate(ctx context.Context) (opened bool, err error) {
	there, err := netfilter.HasTable(in.LateTable())
	if !there || err != nil {
		return false, orNoRight(err)
	}
	err = new(netfilter.Nft).Remove(ctx, in.LateTable())
	return err == nil, err
}

// orNoRight returns nil if this process lacks the permission to ask the kernel (EPERM). It returns any other error unchanged.
func orNoRight(err error) error {
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
