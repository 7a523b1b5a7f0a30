// Package facts finds out what this host is, before a policy is lowered for it: services, devices, what the servers
// behind it announce, and the addresses that it cannot do without. It changes nothing.
// What the kernel can do is in kernel/features.
//
// Read facts.go first: Discover asks all that protections of services depend on. mode.go says of a service whether it lives on
// this host or behind it; tcp.go, listeners.go, servers.go and untagged.go each find out a part. The others answer one question
// each, at any time: paths.go how packets get about, route.go which devices a packet may pass, offload.go where a device leaves
// VLAN tags, session.go who is logged in, addresses.go which addresses are this host's own.
//
//	f, err := facts.Discover(ctx, p, devices)
//	mode, why := f.Mode(&p.Services[0]) // whether the service lives on this host or behind it
package facts
