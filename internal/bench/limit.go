package bench

// leastLimit is the share of the empty program's rate that a limit per /16 must reach on XDP.
const leastLimit = 0.70
