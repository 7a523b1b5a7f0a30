// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// The length in bytes of the IP and TCP headers without options. It is the difference between MTU and MSS.
const (
	headers4 = 40
	headers6 = 60
)

// fromHost returns the options that SYN-ACKs for a service of this host announce: the options that the host's kernel would announce.
func fromHost(s *ir.Protection, m ir.CookieMethod, host *facts.Facts) ir.Handshake {
	f := ir.Handshake{
		Method: m, MSS: [2]uint16{uint16(max(host.MTU-headers4, policy.MinMSS)), uint16(max(host.MTU-headers6, policy.MinMSS))},
		WScale: host.TCP.WScale, Options: hostOptions(m, host.TCP),
	}
	if s.MSS > 0 {
		f.MSS = [2]uint16{s.MSS, s.MSS}
	}
	if s.WScale >= 0 {
		f.WScale = uint8(s.WScale)
	}
	f.Window = host.TCP.FirstWindow(f.MSS)
	return f
}

// hostOptions returns the TCP options that this host uses and that the cookie method can offer.
func hostOptions(m ir.CookieMethod, t facts.TCP) (o ir.TCPOptions) {
	if m == ir.MethodListener && lostToListener(t) != "" {
		return 0
	}
	for option, does := range map[ir.TCPOptions]bool{
		ir.WindowScaling: t.WindowScaling, ir.SACK: t.SACK, ir.Timestamps: t.Timestamps != 0, ir.ECN: t.ECN,
	} {
		if does {
			o |= option
		}
	}
	return o
}
