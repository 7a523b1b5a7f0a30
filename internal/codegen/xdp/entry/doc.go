// Package entry generates the beginning of the XDP program: the parse that a policy asks for, for the frames that traffic is
// made of, and the rules as they are for each of their kinds. A frame of another shape, and a decision that is more than pass or
// drop, goes to general() of bpf/floodwall.c, which decides every frame.
//
// Usual frames are Ethernet with at most one VLAN tag, IPv4 without options or IPv6 without extension headers, not a fragment,
// and TCP, UDP, ICMP or ICMPv6. Each kind has a section of code: checks in the order in which they are reported, so that the
// first that fails is the reason, then rules, of which a section has those that its kind of packet can match.
//
// Read generate.go first, then section.go. Fewer instructions are what makes the program fast: a frame that is not in the cache
// takes about 70 ns, in which a CPU does some 150 instructions for nothing.
package entry
