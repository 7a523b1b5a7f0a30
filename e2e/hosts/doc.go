// SPDX-License-Identifier: Apache-2.0

// Package hosts tests Floodwall on hosts as users have them. Each row of the table (hosts_test.go) is a host that nobody has tuned: its services, its
// closed ports, and the questions to and from it. Its devices have the kernel's default offloads, and no program at the other end. The runner
// (run_test.go) runs the whole life of a policy there: init, apply, a second apply beside the daemon, block, rollback, a reboot, unload. Attacks, and
// packets that no honest host sends, are in e2e/traffic.
//
//	{name: "resolver", serves: "host udp/53 tcp/53", asks: "out udp 192.0.2.1:53 served"},
package hosts
