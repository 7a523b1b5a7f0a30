// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"
)

// lookupWait limits the time to resolve a hub's name.
const lookupWait = 10 * time.Second

// hubAddresses contains the addresses of the hubs. Bans of the fleet do not apply to them. Otherwise a compromised node could cut off all nodes from
// the hubs, and nobody could then lift that node's bans.
type hubAddresses struct {
	mu      sync.Mutex
	of      map[string][]netip.Addr // the last addresses, by the hub's name
	looking bool
}

// look resolves the addresses of hubs, given as tls://HOST:PORT. Names are resolved in the background, because the resolver may be slow.
func (h *hubAddresses) look(ctx context.Context, hubs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string][]netip.Addr{}
	}
	var names []string
	for _, text := range hubs {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			h.of[u.Hostname()] = []netip.Addr{a.Unmap()}
		} else if u.Hostname() != "" {
			names = append(names, u.Hostname())
		}
	}
	if len(names) > 0 && !h.looking {
		h.looking = true
		go h.resolve(ctx, names)
	}
}

func (h *hubAddresses) resolve(ctx context.Context, names []string) {
	for _, name := range names {
		try, cancel := context.WithTimeout(ctx, lookupWait)
		found, err := net.DefaultResolver.LookupNetIP(try, "ip", name)
		cancel()
		if err != nil {
			continue // the last addresses of this hub stay
		}
		for i := range found {
			found[i] = found[i].Unmap()
		}
		h.mu.Lock()
		h.of[name] = found
		h.mu.Unlock()
	}
	h.mu.Lock()
	h.looking = false
	h.mu.Unlock()
}

func (h *hubAddresses) all() (list []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, found := range h.of {
		list = append(list, found...)
	}
	return list
}

// in reports whether a prefix contains a hub's address.
func (h *hubAddresses) in(p netip.Prefix) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.of {
		if slices.ContainsFunc(list, p.Contains) {
			return true
		}
	}
	return false
}
