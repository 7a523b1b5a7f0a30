package control

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ethtool"
	"github.com/floodwall/floodwall/internal/ir"
)

// unchecked notes devices on which SYNPROXY of nftables may drop IPv6: it checks a checksum as if it were that of IPv4
// (nf_ip_checksum in net/netfilter/nft_synproxy.c), unless the device has checked it, or its GRO.
func (a *apply) unchecked() error {
	router := slices.ContainsFunc(a.compiled.Program.Protections, func(p ir.Protection) bool { return p.Router })
	if !router || a.target == compile.TargetIptables {
		return nil
	}
	eth, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer eth.Close()
	for _, d := range a.devices() {
		features, err := eth.Features(d)
		if gro, is := features["rx-gro"]; err != nil || !is || gro.On {
			continue // a device that cannot be asked is no reason not to filter it
		}
		a.notes = append(a.notes, fmt.Sprintf("device %s has GRO off: if it does not check checksums itself, the kernel's SYNPROXY drops the "+
			"IPv6 packets that come in by it; `ethtool -K %s gro on` cures that", d, d))
	}
	return nil
}
