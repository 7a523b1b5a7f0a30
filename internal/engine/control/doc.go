// Package control makes a policy the one that runs, and says what runs. In: a policy, and what this host is
// (internal/host/facts). Out: a generation in the kernel, through internal/kernel/datapath and
// internal/kernel/netfilter, and reports on it. The commands are thin around it; the daemon and the lab use it as they
// do. It does not read the policy's file, and prints nothing: cmd/floodwall and daemon/operate do.
//
//	in := control.Instance{Dir: datapath.DefaultDir, State: state}
//	applied, err := in.Apply(ctx, p, control.ApplyOptions{Confirm: time.Minute})
//	now, err := in.Confirm(ctx)
//
// Read in this order.
//
//   - apply.go: Apply, from the policy's text to the lock; target.go chooses the target.
//   - transaction.go: the transaction, one struct with one undo stack. steps.go: its lists of steps, from top to bottom, for apply, confirm,
//     rollback, the exchange of sets, repair, and what a killed command has left.
//   - The steps of apply: look.go what runs, plan.go what is to run (place.go, with internal/engine/manifest), load.go what the kernel has of it
//     (connections.go, dynamic.go, keepbans.go, netfilter.go with internal/kernel/netfilter), session.go whether it would cut the operator off,
//     switch.go what decides from then on (deadlines.go; strict.go, with internal/kernel/netfilter).
//   - The steps of the others: trial.go and rollback.go end a generation, exchange.go changes its sets, mend.go and repair.go put back what has
//     gone of one. unload.go removes all.
//   - live.go: what runs, as the kernel says (internal/engine/generation); status.go, explain.go and probe.go report it; block.go changes its
//     dynamic sets (internal/engine/ban).
//   - temporary.go: rules beside the policy (internal/engine/generation); handout.go: samples, for internal/daemon/sample.
//   - moving.go, replace.go: moves of rules, for internal/daemon; banlimits.go: limits that ban, for the same.
package control
