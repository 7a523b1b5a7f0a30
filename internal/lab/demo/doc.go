// Package demo shows on real packets what Floodwall is for: a web server under a flood, without and with a policy of
// twelve lines. Everything happens in a lab of network namespaces without names; the state of the firewall and the
// files are in file systems that are mounted nowhere. Nothing of it outlives the process, however that ends.
//
// One CPU is the server's. What arrives is handled there before all processes, as the interrupts of a network card are, so
// the unfiltered flood leaves the web server hardly any time. Another CPU is the world's: it sends the flood, and the clients
// go before that. Flood, clients and server are processes of their own with fixed priorities, so other programs on this
// machine change the picture little.
//
// A demonstration judges Floodwall by counters of the devices' driver: no packet of the flood may reach the server's
// network stack while the policy is in force, no packet of the clients may be dropped, and Floodwall's own counters
// must agree. What the machine does, such as losing packets in a full queue, is said but is no failure.
//
// `floodwall daemon` runs on the server, as a process of its own. This process hands its page to browsers on this machine (page.go), and
// keeps its report of the attack (report.go), the only thing that outlives the demonstration.
//
//	summary, err := demo.Run(ctx, demo.Options{}, demo.NewViewer(os.Stdout, os.Getenv))
//	fmt.Print(summary.Text(80))
package demo
