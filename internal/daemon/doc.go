// Package daemon is what `floodwall daemon` does beside filtering, which never depends on it. In: an instance
// (internal/engine/control), the costs of this host, and what the kernel tells of devices, rules, addresses and offences. Out: changes
// of what runs, each through internal/engine/control, and an Event for each.
//
// Read watch.go first: Watch starts the tasks. Each has a file: repairer.go puts back what others remove,
// bandetector.go bans sources that exceed limits (bannews.go says so, one line a second), feeder.go fetches lists and
// exchanges sets, placer.go moves rules to where they cost least (decider.go says when).
//
//	err := daemon.Watch(ctx, instance, sockets, costs, func(e daemon.Event) { log(e) })
package daemon
