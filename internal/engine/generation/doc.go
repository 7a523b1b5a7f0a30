// SPDX-License-Identifier: Apache-2.0

// Package generation finds the generations of an instance in the kernel, and determines which of them decides. It reads their counters, and reads and
// fills their dynamic sets. Package control makes generations, and replaces one generation by the next.
//
//	live, err := generation.Find(ctx, datapath.DefaultDir)
//	defer live.Close()
//	counts, err := live.Counts(ctx, live.Base())
//
// The files:
//
//   - live.go: Find and Open return a Live: the generations that decide, the one that stands by, and the trial.
//   - inforce.go: the generation in force even if none of it is left in the kernel, and the error for that case.
//   - counts.go: the counters, with internal/engine/manifest; sets.go: the dynamic sets, with internal/engine/ban.
//   - repairs.go: how often a part of a generation was repaired.
//
// # Temporary rules
//
// Temporary rules apply for a limited time in addition to the operator's policy. Each has an owner, a name, and an end that the kernel enforces.
// Input: rules in the policy's language. Output: a program that has them before all rules of the policy, or a separate ruleset of netfilter.
// internal/engine/control loads them into the kernel, in one transaction under its lock. In XDP it renews the program of the generation, which keeps
// all its counters and sets. In netfilter the temporary rules have a table, or chains, beside those of the policy.
package generation
