// SPDX-License-Identifier: Apache-2.0

// Package operate implements the actions of the commands and the API on this host. In: an instance (internal/engine/control), the state directory, and
// an order. Out: the values that commands print and that the API returns, so both give the same answer. The package has no state of its own.
//
//	host := operate.NewHost(datapath.DefaultDir, state, warn)
//	applied, p, err := host.Apply(ctx, operate.Order{Policy: "policy.yaml", Confirm: "60s"})
//	changed, err := host.BlockAll(ctx, operate.BlockOrder{Prefixes: []string{"198.51.100.7"}, For: "1h"})
//
// Read host.go first.
//
//   - apply.go applies a policy and makes a copy for the next boot (saving.go). restore.go applies the copy at boot. late.go closes devices that
//     appear late, and absent.go finds devices that are missing. temporary.go adds rules beside the policy. feeds.go fetches lists.
//   - policyfile.go opens the policy's file for an edit, and puts the edit in force.
//   - block.go changes dynamic sets, by orders and by the lines of a file (terms.go). entries.go lists the entries of dynamic sets.
//   - top.go and suggest.go observe the traffic, by counters (increase.go) and samples (sample.go, views.go). explain.go and capture.go work on
//     single packets.
//   - health.go reports whether the policy is in force. problem.go converts errors to texts for people and programs.
package operate
