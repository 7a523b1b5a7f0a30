// SPDX-License-Identifier: Apache-2.0

// Package demo shows the purpose of Floodwall with real packets: a web server under a flood, without and with a policy of thirteen lines. All of it
// runs in a lab of network namespaces without names. The state of the firewall and the files are in file systems that are mounted nowhere. Nothing of
// it outlives the process, in whichever way that ends.
//
// One CPU is the server's. Its packets are handled there before all processes, like the interrupts of a network card, so that the unfiltered flood
// leaves the web server hardly any time. Another CPU sends the flood, and runs the clients, which have priority over the flood. Flood, clients and
// server are processes of their own with fixed priorities. So other programs on this machine change the figures little.
//
// A demonstration judges Floodwall by the counters of the devices' driver. While the policy is in force, no packet of the flood may reach the
// server's network stack, and no packet of the clients may be dropped. Floodwall's own counters must agree. Effects of the machine, such as packets
// lost in a full queue, are reported, but are no failure.
//
// After that, the server downloads a file through a plain veth, with a policy whose program is at XDP only in a flood (download.go). The demonstration
// judges that the program is where it must be. How fast the download was is only shown.
//
// `floodwall daemon` runs on the server, as a process of its own. This process serves the daemon's page to browsers on this machine (page.go), and
// keeps its report of the attack (report.go). Only the report outlives the demonstration.
//
//	summary, err := demo.Run(ctx, demo.Options{}, demo.NewViewer(os.Stdout, os.Getenv))
//	fmt.Print(summary.Text(80))
//
// # The fleet
//
// RunFleet shows the purpose of a fleet: three web servers behind a router, a hub, clients and attackers, each in a network namespace of its own. All
// hubs and daemons are processes of this program, started like an operator starts them. The result is a Summary with one table.
//
// Read story.go first: it has the course of events. site.go builds the hosts, process.go runs commands in them, phase.go counts, line.go fills the
// link to a node, and upstream.go makes the router drop that flood.
//
// The demonstration runs in a process with mounts of its own (namespaces.go). The kernel kills all hubs and daemons with that process. Its mounts and
// network namespaces end with their last process. So nothing is left, however the demonstration ends.
//
// It judges Floodwall by the kernel's counters. Once the bans are in force, no datagram of a banned sender may reach a host. No packet of a client
// may be dropped. Once the router's rule for an announced flood is in force, that flood may not pass the router. The machine's speed is reported, but
// is no failure.
package demo
