package operate

import (
	"errors"
	"fmt"
	"net"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Absent names the devices of a policy that `apply` would refuse on this host, each as a *policy.Error: there is none of that name, or its
// packets have no Ethernet header. It is nil when there is none of them, and where devices cannot be listed. A policy can be right for
// another host, so it is no mistake.
func Absent(p *policy.Policy) error {
	if _, err := net.Interfaces(); err != nil {
		return nil
	}
	var errs []error
	for _, d := range p.Devices {
		if a := (*datapath.AttachError)(nil); errors.As(datapath.DeviceExists(d.Name), &a) {
			errs = append(errs, &policy.Error{File: p.File, Line: d.Pos.Line, Col: d.Pos.Col,
				Msg:  fmt.Sprintf("`apply` refuses device %q on this host: %s", d.Name, a.Cause),
				Hint: a.Remedy + "; a policy for another host needs no change"})
		}
	}
	return errors.Join(errs...)
}
