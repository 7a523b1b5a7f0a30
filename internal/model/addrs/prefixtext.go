// SPDX-License-Identifier: Apache-2.0

package addrs

import "net/netip"

// PrefixText returns a prefix as text. A prefix that is a single address has no length.
func PrefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
