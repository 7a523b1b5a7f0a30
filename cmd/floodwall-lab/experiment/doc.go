// SPDX-License-Identifier: Apache-2.0

// Package experiment measures the cost of dropping packets: with Floodwall, with the limits that no program can exceed, and with tools that do the
// same job. All of it runs in the namespaces of a lab. Nothing outside of them is changed, and nothing is left behind.
//
// An experiment is a page in the file of its name (experiment.go has the list). It describes itself as data to the runner of package rig:
//
//   - guards (rig.Guard): what is installed, as a policy, a script of nft, a text for iptables-restore, an XDP program, sysctls;
//   - loads: the traffic during the measurement, such as a flood, clients, a transfer;
//   - rows (rig.Row): a guard under a load; its rounds are readings, which are figures by their units;
//   - a table (rig.Table): which figures become columns and results, shares of other rows, goals, marks, and a ranking;
//   - claims over figures (report.Claim).
//
// Session.Run sets rows up, takes their rounds in turn, and publishes. Tables of packet rates (rig.RateTable) have the same rows: in drop, sets, cost,
// payload, limit and the first of pass. Their XDP programs take turns under one flood, all others in the runner. Placement and the calibration give the
// runner probes. The loading in sets and blocklist, placement's moves and the calibration have tables of their own.
//
//	r, err := experiment.Run(ctx, []string{"drop"}, rig.Options{Quick: true})
//	err = r.WriteTables(os.Stdout, false)
package experiment
