// Package statedir keeps two programs from using two state directories for one instance. Bans, lists, copies for boot and reports are kept
// there, so each program would take the changes of the other for losses. It keeps none of them itself.
//
// The instance records its state directory in the BPF file system, once for all generations: the files stay where they are when a policy
// returns that was applied before they were moved.
//
//	err := statedir.Claim(ctx, bpffs, given) // before anything is kept
//	dir, err := statedir.Of(bpffs)
package statedir
