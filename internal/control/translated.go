package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// translated notes protected services whose packets this host may send on to other addresses, as it does those of ports that
// Docker publishes. XDP stands before that: it sees an address of this host, at which no socket listens.
func (a *apply) translated(ctx context.Context, listening []listener) error {
	var which []*ir.Protection
	for i := range a.compiled.Program.Protections {
		s := &a.compiled.Program.Protections[i]
		if s.Router || !slices.ContainsFunc(listening, func(l listener) bool { return serves(s.Ports, uint32(l.port)) }) {
			which = append(which, s)
		}
	}
	if which == nil {
		return nil
	}
	redirects, err := netfilter.Redirects(ctx)
	if !redirects || err != nil {
		return err
	}
	for _, s := range which {
		a.note(translatedNote(s))
	}
	return nil
}

func translatedNote(s *ir.Protection) string {
	if s.Router {
		return fmt.Sprintf("service %q: this host has rules that redirect connections (DNAT, as of ports that Docker publishes): what comes for "+
			"an address of this host and is redirected is not protected, only what comes for the address of the server itself", s.Service)
	}
	return fmt.Sprintf("service %q: nothing listens on its ports here, and this host has rules that redirect connections (DNAT, as of ports "+
		"that Docker publishes): if they redirect those of the service, clients cannot connect while cookies are sent; "+
		"have it listen here (docker run --network host), or take `syn` out", s.Service)
}
