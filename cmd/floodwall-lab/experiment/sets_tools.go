package experiment

import (
	"context"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// loadIpset restores an ipset. One rule of iptables drops its entries, the next drops all other packets.
func loadIpset(ctx context.Context, b *Builder) (g rig.Loaded, err error) {
	at, err := b.NewSite()
	if err != nil {
		return g, err
	}
	if g, err = rig.RestoreIpset(ctx, at, b.List); err != nil {
		return g, err
	}
	_, err = rig.RestoreRules(ctx, at, b.List.V6, "*raw\n-A PREROUTING "+rig.MatchListed+" -j DROP\n-A PREROUTING -j DROP\nCOMMIT\n")
	return g, err
}

// loadNft loads an nft set at a hook. One rule drops its entries, the next drops all other packets.
func loadNft(hook rig.NftHook) func(context.Context, *Builder) (rig.Loaded, error) {
	return func(ctx context.Context, b *Builder) (g rig.Loaded, err error) {
		at, err := b.NewSite()
		if err != nil {
			return g, err
		}
		return rig.LoadNftSet(ctx, at, b.List, hook, rig.NftDrop(b.List)+"drop\n")
	}
}
