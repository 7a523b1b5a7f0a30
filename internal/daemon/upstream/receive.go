// This file has this host drop what routers upstream ask it to drop, by FlowSpec routes. In: the routes that `floodwall-bgp` has received,
// each second. Out: temporary rules, which stand before the policy's rules and which the kernel ends.
//
// `floodwall-bgp` reads what the network sends, so nothing that it says is trusted. check.go decides which routes are obeyed, by the policy
// alone; attribute.go reads their path attributes. book.go remembers routes while their session is lost, and receiver.go brings the rules up to date.

package upstream
