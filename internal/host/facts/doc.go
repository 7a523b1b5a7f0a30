// SPDX-License-Identifier: Apache-2.0

// Package facts finds the properties of this host that compiling a policy depends on: services, devices, the TCP options of servers behind the host,
// and the addresses that the host needs. It changes nothing. The properties of the kernel are in kernel/features.
//
// Read facts.go first: Discover finds all facts on which the protection of services depends. mode.go decides whether a service is on this host or
// behind it. tcp.go, listeners.go, servers.go and untagged.go each find some of the facts. Each of the other files answers one question at any time:
// paths.go by which paths packets pass, route.go which devices a packet may pass, offload.go where a device leaves VLAN tags, session.go who is
// logged in, addresses.go which addresses the host needs.
//
//	f, err := facts.Discover(ctx, p, devices)
//	mode, why := f.Mode(&p.Services[0]) // whether the service lives on this host or behind it
//
// # Servers behind this host
//
// servers.go finds the TCP options that the servers behind this host announce. A program that answers clients on behalf of the servers needs them.
// servers.go does not depend on a policy.
package facts
