package bench

import (
	"context"
)

// loadIpset restores an ipset, and has iptables drop what is in it, and then the rest.
func loadIpset(ctx context.Context, b *setBuilder) (g loaded, err error) {
	at, err := b.site()
	if err != nil {
		return g, err
	}
	if g, err = restoreIpset(ctx, at, b.list); err != nil {
		return g, err
	}
	_, err = restoreRules(ctx, at, b.list.v6, "*raw\n-A PREROUTING "+matchListed+" -j DROP\n-A PREROUTING -j DROP\nCOMMIT\n")
	return g, err
}

// loadNft loads an nft set with rules in a hook that drop what is in it, and then the rest.
func loadNft(hook nftHook) func(context.Context, *setBuilder) (loaded, error) {
	return func(ctx context.Context, b *setBuilder) (g loaded, err error) {
		at, err := b.site()
		if err != nil {
			return g, err
		}
		return loadNftSet(ctx, at, b.list, hook, nftDrop(b.list)+"drop\n")
	}
}
