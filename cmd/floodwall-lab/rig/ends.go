package rig

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// The ends of a link at sites with two links: OtherEnd, and ServerEnd on the server. ServerEnd has a queue, as a network card has.
var (
	OtherEnd  = lab.EndOptions{CPU: lab.OnCPU(SourceCPU), Urgent: true}
	ServerEnd = lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true, Queue: true}
)

// The addresses of the clients' link: ClientsAddr at the clients, ForClientsAddr at the server.
var ClientsAddr, ForClientsAddr = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")

// ClientNetwork has the clients' addresses. The flood uses none of them.
var ClientNetwork = netip.MustParsePrefix("40.0.0.0/16")
