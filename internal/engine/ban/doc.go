// SPDX-License-Identifier: Apache-2.0

// Package ban has the bans of an instance: dynamic sets in the memory of an XDP program and in netfilter, the file that
// keeps their entries over a reboot, the detector behind `over: {ban: …}`, and the restoring of entries that a set has lost. The addresses that must
// never be banned are in host/allowlist.
//
// A ban comes from the command (cmd/floodwall/block.go), the API (daemon/operate), the detector, the fleet or another
// program (daemon, daemon/integrations). All call control.Instance.Block (engine/control/block.go). It finds the
// generation's sets (generation/sets.go), and a set of this package writes the entry: xdpset.go into memory that a
// program reads (model/addrs/dynamicset.go, bpf/dynamic.h), filterset.go through nft or ipset.
//
//	log := ban.OpenLog(state, bpffs, datapath.DefaultDir)
//	records, err := log.Load(wanted)               // after a reboot
//	n, err := ban.Restore(ctx, sets, log, spares)
package ban
