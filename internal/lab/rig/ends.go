package rig

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// The ends of the wires of sites with two: the other end's, and the server's, which have queues, as network cards have.
var (
	OtherEnd  = lab.EndOptions{CPU: lab.OnCPU(SourceCPU), Urgent: true}
	ServerEnd = lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true, Queue: true}
)

// The addresses of the clients' wire: their own, and the server's.
var ClientsAddr, ForClientsAddr = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")

// ClientNetwork is where the clients' addresses are from. The flood has none of them.
var ClientNetwork = netip.MustParsePrefix("40.0.0.0/16")
