package operate

import (
	"errors"
	"fmt"
	"net"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Absent names the devices of a policy that `apply` would refuse on this host, as there is none of that name, and those that keep the policy
// from XDP, as their packets have no Ethernet header, each as a *policy.Error. It is nil when there is none of them, and where devices cannot be listed. A policy can be right for
// another host, so it is no mistake.
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
