// SPDX-License-Identifier: Apache-2.0

// Package attack detects when an attack begins and ends, names its kinds of packets, suggests rules against it, and writes a report. In: the counters
// of the running policy, each second, and the samples of the traffic (internal/daemon/sample). Out: an Event at each turn, and reports in a
// directory. The package changes no rule: operate does, at the request of a person or of `auto`.
//
// Read watcher.go first: it evaluates the samples each tenth of a second, and the counters each second. traffic.go has the traffic of each service,
// and the senders that are known (load.go, rate.go, evidence.go). From these, judge.go decides between an attack and a crowd. collect.go keeps the
// data of the current attack, and vector.go names the kinds of its packets. search.go searches the passing packets for rules, and auto.go adds and
// removes rules automatically. baseline.go keeps samples of quiet times, which rules must not match. openings.go keeps the first packets of
// conversations, and fit.go forbids rules that match these. usual.go keeps the rates of quiet times, and learning.go reports which data is still
// missing. proof.go and senders.go find out whether senders are genuine. report.go, html.go and store.go are the report, its page, and its files.
// replay.go runs all of this on a capture.
//
//	w := attack.New(host, attack.InState(state, bpffs, datapath.DefaultDir), func(e attack.Event) { log(e) })
//	go w.Run(ctx)
//	report := w.Current() // of the current attack
package attack
