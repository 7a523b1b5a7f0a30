// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// The host that all traffic goes to: its network, and the address of its services.
var (
	HostNetwork = netip.MustParsePrefix("203.0.113.8/29")
	Host        = netip.MustParseAddr("203.0.113.9")
)

// The ports of the host's services.
const (
	HTTP  = 80
	HTTPS = 443
	SSH   = 22
	DNS   = 53
	Game  = 27015
	Voice = 9987
	Small = 5000 // a service with few packets per second
)

// Class is a part of the traffic. Its addresses and its port distinguish it from the rest, so it can be counted anywhere.
type Class struct {
	Name  string
	From  netip.Prefix
	Proto lab.Proto
	Port  uint16 // of the host; 0: any
}

// Has reports whether a packet belongs to the class.
func (c *Class) Has(p *Packet) bool {
	return c.From.Contains(p.From) && c.Proto == p.Proto && (c.Port == 0 || c.Port == p.DPort)
}

// The networks of honest clients. They contain nobody else, and no attack has sources from them.
var (
	UsualClients = netip.MustParsePrefix("40.0.0.0/16") // known to the host
	crowdClients = netip.MustParsePrefix("45.83.12.0/24")
	worldClients = netip.MustParsePrefix("64.0.0.0/2") // a quarter of the Internet
	voiceClients = netip.MustParsePrefix("41.1.0.0/16")
	Others       = netip.MustParsePrefix("41.0.0.0/8") // single hosts with unusual traffic
	Uploader     = netip.MustParseAddr("41.7.9.20")
	Downloader   = netip.MustParseAddr("41.7.9.21")
	Monitor      = netip.MustParseAddr("41.9.9.9")
	nat          = netip.MustParseAddr("41.20.30.40")
	scanner      = netip.MustParseAddr("41.66.6.6")
	CDN          = netip.MustParsePrefix("41.100.0.0/30")
)

// attackers is the network of the forged sources of attacks.
var attackers = netip.MustParsePrefix("128.0.0.0/2")

// usual contains the classes of the usual mix.
var usual = []Class{
	{"http", UsualClients, lab.TCP, HTTP}, {"https", UsualClients, lab.TCP, HTTPS}, {"ssh", UsualClients, lab.TCP, SSH},
	{"dns", UsualClients, lab.UDP, DNS}, {"game", UsualClients, lab.UDP, Game}, {"voice", UsualClients, lab.UDP, Voice},
	{"small", UsualClients, lab.UDP, Small},
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
