// Package attack sees that an attack begins and ends, names what it is made of, suggests rules against it, and writes a
// report. In: the counters of what runs, each second, and the samples of the traffic (internal/daemon/sample). Out: an
// Event at each turn, and reports in a directory. It changes no rule: operate does, when somebody or `auto` asks for
// it.
//
// Read watcher.go first: each tenth of a second it looks at the samples, each second at the counters. traffic.go has what
// comes to each service and who is no stranger (load.go, rate.go, evidence.go); judge.go decides by that between an
// attack and a crowd. collect.go keeps what is known of the attack that goes on, vector.go names the kinds of its packets.
// search.go looks for rules in what passes, auto.go adds and removes them by itself. baseline.go keeps samples of quiet
// times, which rules must not hit, usual.go what these times are like. report.go, html.go and store.go are the report, its
// page, and where reports are kept. replay.go runs all that on a capture.
//
//	w := attack.New(host, attack.InState(state, bpffs, datapath.DefaultDir), func(e attack.Event) { log(e) })
//	go w.Run(ctx)
//	report := w.Current() // of the attack that goes on
package attack
