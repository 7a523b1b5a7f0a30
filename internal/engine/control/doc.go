// SPDX-License-Identifier: Apache-2.0

// Package control puts a policy in force, and reports what is in force. Its input is a policy and the facts about this host
// (internal/host/facts). It makes a generation in the kernel through internal/kernel/datapath and internal/kernel/netfilter,
// and reports on it. The commands are thin wrappers around it; the daemon and the lab call it in the same way. It does not
// read the policy's file, and prints nothing: cmd/floodwall and daemon/operate do.
//
//	in := control.Instance{Dir: datapath.DefaultDir, State: state}
//	applied, err := in.Apply(ctx, p, control.ApplyOptions{Confirm: time.Minute})
//	now, err := in.Confirm(ctx)
//
// Read in this order.
//
//   - apply.go: Apply, from the policy's text to the lock; target.go chooses the target.
//   - transaction.go: the transaction, one struct with one undo stack. steps.go: its lists of steps, in the order in which they run, for apply,
//     confirm, rollback, the exchange of sets, repair, and cleaning up after a killed command.
//   - The steps of apply: look.go finds what runs, plan.go decides what will run (place.go, with internal/engine/manifest), load.go takes over
//     the running policy's state (connections.go, dynamic.go, keepbans.go, netfilter.go with internal/kernel/netfilter), session.go checks that the
//     operator is not cut off, switch.go puts the new policy in force (deadlines.go; strict.go, with internal/kernel/netfilter).
//   - The steps of the other changes: trial.go and rollback.go end a generation, exchange.go changes its sets, mend.go and repair.go restore
//     its missing parts. unload.go removes everything.
//   - live.go: what runs, according to the kernel (internal/engine/generation); status.go, explain.go and probe.go report it; block.go changes its
//     dynamic sets (internal/engine/ban).
//   - temporary.go: rules beside the policy (internal/engine/generation); handout.go: samples, for internal/daemon/sample.
//   - moving.go, replace.go: moves of rules, for internal/daemon; banlimits.go: limits that ban, also for internal/daemon.
package control
