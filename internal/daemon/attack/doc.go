// Package attack sees that an attack begins and ends, names what it is made of, suggests rules against it, and writes a
// report. In: the counters of what runs, each second, and the samples of the traffic (internal/daemon/sample). Out: an
// Event at each turn, and reports in a directory. It changes no rule: operate does, when somebody or `auto` asks for
// it.
//
// Read watcher.go first: each second it reads the counters. rate.go decides by them when an attack begins and ends.
// collect.go keeps what is known of the attack that goes on, vector.go names the kinds of its packets, baseline.go
// keeps samples of quiet times, which suggestions must not hit. report.go, html.go and store.go are the report, its
// page, and where reports are kept.
//
//	w := attack.New(host, attack.InState(state, bpffs, datapath.DefaultDir), func(e attack.Event) { log(e) })
//	go w.Run(ctx)
//	report := w.Current() // of the attack that goes on
package attack
