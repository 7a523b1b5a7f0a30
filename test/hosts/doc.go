// Package hosts tries Floodwall on hosts as they are: each row of the table (hosts_test.go) is a host that nobody has tuned, with what it
// serves, what must stay closed, and who asks whom. Its devices have the kernel's own offloads and no program at the other end. The runner
// (run_test.go) takes a policy through its life there: init, apply, a second apply beside the daemon, block, rollback, a reboot, unload.
// Attacks, and packets that no honest host sends, are not here: test/traffic has those.
//
//	{name: "resolver", serves: "host udp/53 tcp/53", asks: "out udp 192.0.2.1:53 served"},
package hosts
