// Package experiment measures what dropping packets costs: Floodwall, the limits that no program can pass, and the tools
// that do the same job. Everything happens in the namespaces of a lab; nothing outside of them is touched or left.
//
// It has what a run is: the experiments by their names and the calibration. Each experiment is a package of
// its name (cost is packetcost), and stands on the same four: rig, where and how is measured; tools, the system's programs;
// lists, what firewalls are filled with; and peer, programs to compare with. What they find goes into a report, which page
// and compare show.
//
//	r, err := experiment.Run(ctx, []string{"drop-point"}, rig.Options{Quick: true})
//	err = r.WriteTables(os.Stdout, false)
package experiment
