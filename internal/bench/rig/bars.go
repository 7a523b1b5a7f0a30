package bench

// leastLimit is the share of the empty program's rate that a limit per /16 must reach on XDP.
const leastLimit = 0.70

// What Floodwall must reach on XDP: times the rate of iptables with one string (bm), the packet dropped after it.
const (
	leastString  = 3 // with one string
	leastStrings = 2 // with 64
)
