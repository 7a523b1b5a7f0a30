package addrs

import "net/netip"

// PrefixText is a prefix as people write it: a single address without its length.
func PrefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
