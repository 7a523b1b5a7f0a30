// Package generation finds the generations of an instance in the kernel, and says which of them decides. It reads their counters, and reads
// and fills their dynamic sets. Package control makes generations, and goes from one to the next.
//
//	live, err := generation.Find(ctx, datapath.DefaultDir)
//	defer live.Close()
//	counts, err := live.Counts(ctx, live.Base())
//
// The files:
//
//   - live.go: Find and Open give a Live, with the generations that decide, the one that stands by, and the trial.
//   - inforce.go: the generation in force though nothing of it is in the kernel, and the error that says so.
//   - counts.go: the counters, with internal/engine/manifest; sets.go: the dynamic sets, with internal/engine/ban.
//   - repairs.go: how often something of a generation was put back.
package generation
