// SPDX-License-Identifier: Apache-2.0

// Package daemon contains the background tasks of `floodwall daemon`. Filtering does not depend on them. In: an instance (internal/engine/control), the
// costs of this host, and the kernel's events about devices, rules, addresses and offences. Out: changes of the running policy, each through
// internal/engine/control, and an Event for each change.
//
// Read watch.go first: Watch starts the tasks. Each task has a file. repairer.go restores programs and rules that other programs remove.
// bandetector.go bans sources that exceed limits, and bannews.go logs the bans, one line a second. feeder.go fetches lists and exchanges sets.
// placer.go moves rules to the hook where they cost least, and decider.go decides when.
//
//	err := daemon.Watch(ctx, instance, sockets, costs, func(e daemon.Event) { log(e) })
package daemon
