// Package operate is what the commands and the API do with this host. In: an instance (internal/engine/control), the
// state directory, and what somebody asks for. Out: the values that commands print and that the API answers with. So
// both give the same answer. It has no state of its own.
//
//	host := operate.NewHost(datapath.DefaultDir, state, warn)
//	applied, p, err := host.Apply(ctx, operate.Order{Policy: "policy.yaml", Confirm: "60s"})
//	changed, err := host.BlockAll(ctx, operate.BlockOrder{Prefixes: []string{"198.51.100.7"}, For: "1h"})
//
// Read host.go first.
//
//   - apply.go applies, with a copy for the next boot (saving.go), which restore.go applies then; late.go keeps devices closed that appear
//     late, absent.go names those that are not there; temporary.go adds rules beside the policy; feeds.go fetches lists.
//   - block.go changes dynamic sets, by orders and by the lines of a file (terms.go); entries.go lists them.
//   - top.go and suggest.go watch the traffic, by counters (increase.go) and samples (sample.go, views.go); explain.go and capture.go are
//     about single packets.
//   - health.go says whether the policy is in force; problem.go makes of errors what people and programs read.
package operate
