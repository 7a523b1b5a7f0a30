package bench

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// The ends of its wires. The resolver's have queues, as network cards have.
var (
	otherEnd    = lab.EndOptions{CPU: lab.OnCPU(sourceCPU), Urgent: true}
	resolverEnd = lab.EndOptions{CPU: lab.OnCPU(receiverCPU), Urgent: true, Queue: true}
)

// The addresses of the clients' wire.
var clientsAddr, forClientsAddr = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")

// clientNetwork is where the clients' addresses are from. The flood has none of them.
var clientNetwork = netip.MustParsePrefix("40.0.0.0/16")
