// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// askTime is the largest time for finding out by which rule this host drops an answer.
const askTime = 10 * time.Second

// ownDrop returns a text if this host itself drops the answers of the server at asked, or those of the name server. The server did not answer in
// time. It returns "" if this host does not drop them, or if this is unknown.
func (f *Fetcher) ownDrop(ctx context.Context, err error, asked netip.AddrPort) string {
	var timeout net.Error
	if f.Drops == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
		return ""
	}
	from, form := asked, "tcp %v > %v SA"
	var names *net.DNSError
	if errors.As(err, &names) {
		from, _ = netip.ParseAddrPort(names.Server)
		form = "udp %v > %v"
	}
	to, err := sourceFor(from)
	if err != nil {
		return ""
	}
	line := fmt.Sprintf(form, from, to)
	answer, err := packet.Parse(line + " state=established")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	rule := f.Drops(ctx, answer)
	if rule == "" {
		return ""
	}
	return fmt.Sprintf("; the policy that runs drops its answers by %s: a rule must pass packets such as %q", rule, line)
}

// sourceFor returns the source address and port that this host would use for packets to a server. It sends no packet.
func sourceFor(server netip.AddrPort) (netip.AddrPort, error) {
	c, err := net.Dial("udp", server.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()
	return netip.ParseAddrPort(c.LocalAddr().String())
}
