// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"errors"
	"fmt"
	"net"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Absent returns an error for each device of a policy on which XDP cannot run on this host. Either no device has that name, and `apply` would refuse
// the policy, or the device has no Ethernet header. Each error is a *policy.Error. The result is nil when there are no such devices, and when the
// devices cannot be listed. Such a policy is not wrong, because it may be for another host.
func Absent(p *policy.Policy) error {
	if _, err := net.Interfaces(); err != nil {
		return nil
	}
	var errs []error
	for _, d := range p.Devices {
		a, exists := (*datapath.AttachError)(nil), datapath.DeviceExists(d.Name) == nil
		if !errors.As(datapath.Attachable(d.Name), &a) {
			continue
		}
		if exists {
			errs = append(errs, &policy.Error{File: p.File, Line: d.Pos.Line, Col: d.Pos.Col,
				Msg:  fmt.Sprintf("XDP cannot run on device %q: %s; `apply` takes nftables, or iptables, for all devices", d.Name, a.Cause),
				Hint: "a policy of its own, in another instance (`--bpffs`, `--state`), lets the other devices keep XDP"})
		} else {
			errs = append(errs, &policy.Error{File: p.File, Line: d.Pos.Line, Col: d.Pos.Col,
				Msg:  fmt.Sprintf("`apply` refuses device %q on this host: %s", d.Name, a.Cause),
				Hint: a.Remedy + "; a policy for another host needs no change"})
		}
	}
	return errors.Join(errs...)
}
