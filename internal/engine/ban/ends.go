// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// WriteEnds writes this host's addresses and broadcast addresses, and the MAC addresses of the devices, into the memory of the map image.HostEnds. If
// memory is nil, WriteEnds does nothing: the program sends no answers.
func WriteEnds(memory []byte, devices []string) (err error) {
	if memory == nil {
		return nil
	}
	var e image.Ends
	if e.MACs, err = facts.MACs(devices); err != nil {
		return err
	}
	if e.Own, err = facts.LocalPrefixes(); err != nil {
		return err
	}
	if e.Broadcasts, err = facts.Broadcasts(); err != nil {
		return err
	}
	e.Write(memory)
	return nil
}
