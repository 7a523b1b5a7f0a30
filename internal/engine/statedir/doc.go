// SPDX-License-Identifier: Apache-2.0

// Package statedir ensures that all programs use the same state directory for an instance. The state directory has bans, lists, copies for boot and
// reports. With two state directories, each program would treat the changes of the other program as losses. The package itself stores none of these
// files.
//
// The instance records the path of its state directory in the BPF file system, once for all generations. So the files are still found when they were
// moved and then an earlier policy returns.
//
//	err := statedir.Claim(ctx, bpffs, given) // before any file is stored
//	dir, err := statedir.Of(bpffs)
package statedir
