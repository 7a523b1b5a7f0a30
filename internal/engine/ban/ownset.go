package ban

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// FillLocal enters the host's own addresses into a set, by its number, that is empty.
func FillLocal(sets *addrs.Dynamic, number int) error {
	to := sets.Sets[number]
	own, err := facts.OwnAddresses()
	if err != nil {
		return err
	}
	for _, a := range own {
		err := to.Insert(addrs.Entry{Prefix: netip.PrefixFrom(a, a.BitLen())}, Now())
		if errors.Is(err, addrs.ErrFull) {
			return fmt.Errorf("this host has more than %d addresses of its own, too many for `local`", to.Capacity())
		}
		if err != nil {
			return fmt.Errorf("own address %s: %w", a, err)
		}
	}
	sets.ShowOwn(own)
	return nil
}

// UpdateLocal changes a set, by its number, to the host's present addresses. It inserts before it removes, so no address of the host is
// missing at any moment.
func UpdateLocal(sets *addrs.Dynamic, number int) (added, removed int, err error) {
	set, now := sets.Sets[number], Now()
	own, err := facts.OwnAddresses()
	if err != nil {
		return 0, 0, err
	}
	is := map[netip.Prefix]bool{}
	for _, a := range own {
		is[netip.PrefixFrom(a, a.BitLen())] = true
	}
	var gone []netip.Prefix
	for entry := range set.All(now) {
		if !is[entry.Prefix] {
			gone = append(gone, entry.Prefix)
		}
		delete(is, entry.Prefix)
	}
	for p := range is {
		if err := set.Insert(addrs.Entry{Prefix: p}, now); err != nil {
			return added, 0, fmt.Errorf("own address %s: %w", p.Addr(), err)
		}
		added++
	}
	sets.ShowOwn(own)
	for _, p := range gone {
		set.Delete(p, now)
	}
	return added, len(gone), nil
}
