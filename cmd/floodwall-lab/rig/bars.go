package rig

// LeastLimit is the packet rate that a limit per /16 must reach on XDP, as a share of the smallest program's rate.
const LeastLimit = 0.75

// The packet rate that a text search must reach on XDP, as a multiple of the rate of iptables. Iptables searches for one string (bm) and then
// drops the packet.
const (
	LeastString  = 3 // with one string
	LeastStrings = 2 // with 64
)
