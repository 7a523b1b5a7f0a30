package rig

// LeastLimit is the share of the least program's rate that a limit per /16 must reach on XDP.
const LeastLimit = 0.75

// What a search for texts must reach on XDP: times the rate of iptables with one string (bm), the packet dropped after it.
const (
	LeastString  = 3 // with one string
	LeastStrings = 2 // with 64
)
